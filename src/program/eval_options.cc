#include "program/eval_options.h"

#include <fmt/format.h>

#include <sstream>

#include "attention/spec.h"
#include "base/bytes.h"
#include "cli/output.h"
#include "eval/experiment.h"

namespace longheads {

void AddEvalOptions(CLI::App& app, EvalOptions& options, const std::string& lengths,
                    const std::string& standard) {
  options.lengths = {standard};
  AddModelOptions(app, options.model, /*with_attention=*/false);
  AddAttentionOption(app, options);
  app.add_option("--lengths", options.lengths, lengths)
      ->type_name("N,N,...")
      ->allow_extra_args(false)
      ->default_str(standard)
      ->group(kExperimentGroup);
}

void AddAttentionOption(CLI::App& app, EvalOptions& options) {
  app.add_option("--attn", options.attention,
                 "attention methods, separated by ';' or by repeating the option ('longheads methods' lists "
                 "them)")
      ->type_name("SPECS")
      ->allow_extra_args(false)
      ->default_str("full;auto")
      ->group(kExperimentGroup);
}

void AddPartOptions(CLI::App& app, std::string& shard, bool& retry_failed) {
  app.add_option("--shard", shard, "run the i-th of n parts of the samples; a file of its own for each")
      ->type_name("i/n")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_flag("--retry-failed", retry_failed, "run samples that failed before once more")
      ->group(kExperimentGroup);
}

void AddOutOption(CLI::App& app, std::string& directory, const std::string& name) {
  app.add_option(
         "--out", directory,
         fmt::format(
             "keep DIR/{0}.jsonl (a line for each case, as it comes; cases it holds are not run again) "
             "and DIR/{0}.csv",
             name))
      ->type_name("DIR")
      ->group("Output");
}

std::vector<std::string> ListSpecs(const EvalOptions& options) {
  std::vector<std::string> specs;
  for (const std::string& list : options.attention) {
    for (std::string& spec : SplitSpecs(list)) specs.push_back(std::move(spec));
  }
  DropRepeats(specs);
  return specs;
}

Result<std::vector<int64_t>> ListLengths(const EvalOptions& options) {
  std::vector<int64_t> lengths;
  for (const std::string& list : options.lengths) {
    std::istringstream parts(list);
    for (std::string part; std::getline(parts, part, ',');) {
      const Result<int64_t> length = ParseCount(part);
      if (!length) return InvalidInput("--lengths: " + length.error().message);
      lengths.push_back(*length);
    }
  }
  DropRepeats(lengths);
  return lengths;
}

std::function<Result<std::unique_ptr<Engine>>(const std::string&)> Loader(ModelOptions model) {
  return [model = std::move(model)](const std::string& attention) {
    ModelOptions options = model;
    options.attention = attention;
    return LoadEngine(options);
  };
}

std::function<void(double)> CaseProgress::Start(const std::string& label, int64_t n_tokens) {
  Finish();
  progress_.emplace(label, n_tokens);
  return [this](double share) { (*progress_)(share); };
}

void CaseProgress::Finish() {
  if (progress_) progress_->Finish();
  progress_.reset();
}

std::string QuoteAnswer(const std::string& answer) {
  std::string line;
  for (const char c : answer) {
    if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return '"' + OnOneLine(line) + '"';
}

void AnnounceMethod(const Engine& engine, const std::string& attention, int64_t longest) {
  const std::string explained = engine.ExplainAttention();
  Note("{}: {}{}{}\n", attention, engine.DescribeKernels(), explained.empty() ? "" : "; ", explained);
  for (const std::string& warning : engine.Warnings(longest)) Note("warning: {}\n", warning);
}

Result<int> FinishEval(const Status& status, const std::string& table, std::size_t n_done,
                       const std::string& out_dir) {
  WriteOutput(table);
  if (!status && status.error().kind == ErrorKind::kCancelled) {
    return MakeError(ErrorKind::kCancelled,
                     fmt::format("interrupted with {} cases done{}", n_done,
                                 out_dir.empty() ? "" : "; the same command goes on from there"));
  }
  LH_TRY(status);
  return 0;
}

void NoteFailed(int64_t n_failed, std::size_t n) {
  if (n_failed == 0) return;
  Note("warning: {} of {} samples failed and count as nothing: their records say why\n", n_failed, n);
}

Error AllFailed(std::size_t n, const std::string& first_reason, const std::string& out_dir) {
  return {ErrorKind::kInvalidInput,
          fmt::format("none of {} samples could be run; the first: {}{}", n, first_reason,
                      out_dir.empty() ? "" : " (--retry-failed runs them once more)")};
}

}  // namespace longheads
