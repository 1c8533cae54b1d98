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

// What samples have taken so far, over several steps of a suite.
struct EvalPace {
  double seconds = 0, tokens = 0;

  void Add(double more_seconds, int64_t more_tokens) {
    seconds += more_seconds;
    tokens += static_cast<double>(more_tokens);
  }
};

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
// --shard, for ParseShard, and --retry-failed.
void AddPartOptions(CLI::App& app, std::string& shard, bool& retry_failed);
// --out: DIR/NAME.jsonl and DIR/NAME.csv.
void AddOutOption(CLI::App& app, std::string& directory, const std::string& name);

// In the order given, each once.
std::vector<std::string> ListSpecs(const EvalOptions& options);
Result<std::vector<int64_t>> ListLengths(const EvalOptions& options);

// Loads the model with the method in the place of the options' own.
std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> Loader(ModelOptions model);

// How far the case at hand is, on stderr: one piece of work after the other.
class CaseProgress {
 public:
  // Ends what went before. What it returns hears of the share that is done.
  std::function<void(double)> Start(const std::string& label, int64_t n_tokens);
  void Finish();

 private:
  std::optional<Progress> progress_;
};

// On one line, in quotes.
std::string QuoteAnswer(const std::string& answer);

// Says on stderr what runs, and what the method warns of at the longest length.
void AnnounceMethod(const Engine& engine, const std::string& attention, int64_t longest);

// How a run ended: prints what it found on stdout; an interrupt says how much is kept.
Result<int> FinishEval(const Status& status, const std::string& table, std::size_t n_done,
                       const std::string& out_dir);

// Says on stderr that some of n samples failed, if any did.
void NoteFailed(int64_t n_failed, std::size_t n);
// "none of 4 samples could be run, ...": a run of which nothing came is no success.
Error AllFailed(std::size_t n, const std::string& first_reason, const std::string& out_dir);

// The same for records that may have failed: says how many, and where all have that is an Error.
template <typename Record>
Result<int> FinishEval(const Status& status, const std::string& table, const std::vector<Record>& records,
                       const std::string& out_dir) {
  const int64_t n_failed =
      std::ranges::count_if(records, [](const Record& record) { return !record.failed.empty(); });
  NoteFailed(n_failed, records.size());
  LH_ASSIGN(const int exit_status, FinishEval(status, table, records.size(), out_dir));
  if (records.empty() || n_failed < std::ssize(records)) return exit_status;
  return tl::unexpected<Error>(AllFailed(records.size(), records[0].failed, out_dir));
}

}  // namespace longheads
