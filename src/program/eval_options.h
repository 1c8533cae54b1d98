// What the experiments' commands have in common: methods, lengths, the directory of the results, and how a
// model is loaded and announced.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "engine/engine.h"

namespace longheads {

inline constexpr const char* kExperimentGroup = "Experiment";

struct EvalOptions {
  ModelOptions model;
  std::vector<std::string> attention = {"full", "auto"};  // each a list
  std::vector<std::string> lengths;                       // each a list
};

// The model's options, --attn and --lengths, which means `lengths`; where it is not given it is `standard`.
void AddEvalOptions(CLI::App& app, EvalOptions& options, const std::string& lengths,
                    const std::string& standard);
// --attn alone.
void AddAttentionOption(CLI::App& app, EvalOptions& options);
// --out: DIR/NAME.jsonl and DIR/NAME.csv.
void AddOutOption(CLI::App& app, std::string& directory, const std::string& name);

// In the order given, each once.
std::vector<std::string> ListSpecs(const EvalOptions& options);
Result<std::vector<int64_t>> ListLengths(const EvalOptions& options);

// Loads the model with the method in the place of the options' own.
std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> Loader(
    const ModelOptions& model);

// How far the case at hand is, on stderr: one piece of work after the other.
class CaseProgress {
 public:
  // Ends what went before. What it returns hears of the share that is done.
  std::function<void(double)> Start(const std::string& label, int64_t n_tokens);
  void Finish();

 private:
  std::optional<PrefillProgress> progress_;
};

// On one line, in quotes.
std::string QuoteAnswer(const std::string& answer);

// Says on stderr what runs, and what the method warns of at the longest length.
void AnnounceMethod(const Engine& engine, const std::string& attention, int64_t longest);

// How a run ended: prints what it found on stdout; an interrupt says how much is kept.
Result<int> FinishEval(const Status& status, const std::string& table, std::size_t n_done,
                       const std::string& out_dir);

// "all 4 samples failed, ...": a run of which nothing came is no success.
Error AllFailed(std::size_t n, const std::string& first_reason, const std::string& out_dir);

// The same for records that may have failed: where there are some, and each one has.
template <typename Record>
Result<int> FinishEval(const Status& status, const std::string& table, const std::vector<Record>& records,
                       const std::string& out_dir) {
  LH_ASSIGN(const int exit_status, FinishEval(status, table, records.size(), out_dir));
  const auto failed = [](const Record& record) { return !record.failed.empty(); };
  if (records.empty() || !std::ranges::all_of(records, failed)) return exit_status;
  return tl::unexpected<Error>(AllFailed(records.size(), records[0].failed, out_dir));
}

}  // namespace longheads
