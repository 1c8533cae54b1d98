#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/haystack.h"
#include "eval/ppl.h"
#include "formats/input_file.h"
#include "program/eval_command.h"
#include "program/eval_options.h"
#include "program/eval_suite_command.h"

namespace longheads {
namespace {

struct PplCommandOptions {
  EvalOptions eval;
  PplOptions ppl;
  std::string file;
  std::string shard = "1/1";
};

std::string Describe(const std::string& attention, const PplCase& c) {
  return fmt::format("{}, {} tokens from {} on", attention, c.length, c.offset);
}

// Read and scored behind the case before it.
int64_t TokensOf(const PplCase& c) {
  const int64_t before = c.calls.size() > 1 ? c.calls[c.calls.size() - 2] : 0;
  return c.length - before;
}

// About so many tokens are read and scored in one shard: those of the longest length, and the scored ones of
// the others. Lengths ascend.
double TokensOf(const PplOptions& o) {
  const double shorter = static_cast<double>(o.lengths.size()) - 1;
  return (static_cast<double>(o.lengths.back()) + shorter * static_cast<double>(o.n_score)) *
         static_cast<double>(o.attention.size()) * static_cast<double>(o.n_samples) /
         static_cast<double>(o.shard.count);
}

// Cases as they come, on stderr.
class PplReport {
 public:
  // `pace` hears of every case that is run and does not fail; may be null.
  explicit PplReport(EvalPace* pace) : pace_(pace) {}

  PplHooks Hooks(const ModelOptions& model, int64_t longest) {
    return {
        .load = Loader(model),
        .on_text =
            [](int64_t n_tokens, std::size_t n_lost) {
              Note("the text has {} tokens{}\n", n_tokens,
                   n_lost == 0 ? ""
                               : fmt::format("; {} of its bytes have none in this vocabulary and "
                                             "are left out",
                                             n_lost));
            },
        .on_method = [longest](const Engine& engine,
                               const std::string& attention) { AnnounceMethod(engine, attention, longest); },
        .on_work =
            [this](const std::string& attention, const PplCase& c, bool scoring, int64_t n_tokens) {
              return progress_.Start(
                  fmt::format("{}, {}", Describe(attention, c), scoring ? "scoring" : "reading"), n_tokens);
            },
        .on_case = [this](const PplRecord& record, bool from_file, int64_t done,
                          int64_t n_cases) { PrintCase(record, from_file, done, n_cases); },
        .cancel = &InterruptToken()};
  }

  void FinishProgress() { progress_.Finish(); }

 private:
  void PrintCase(const PplRecord& r, bool from_file, int64_t done, int64_t n_cases) {
    progress_.Finish();
    const std::string found = r.failed.empty() ? fmt::format("perplexity {:.4f} of the last {}",
                                                             r.score.perplexity(), r.score.n_tokens)
                                               : "failed: " + r.failed;
    Note("[{}/{}] {}: {}; {}\n", done, n_cases, Describe(r.attention, r.which), found,
         from_file ? "done before" : fmt::format("{:.1f} s", r.seconds));
    if (!from_file && r.failed.empty() && pace_ != nullptr) pace_->Add(r.seconds, TokensOf(r.which));
  }

  EvalPace* pace_;
  CaseProgress progress_;
};

// "4 samples", "part 1/2 of 4 samples".
std::string DescribeSamples(const PplOptions& o) {
  const std::string samples = o.n_samples == 1 ? "1 sample" : fmt::format("{} samples", o.n_samples);
  if (o.shard.count == 1) return samples;
  return fmt::format("part {}/{} of {}", o.shard.index, o.shard.count, samples);
}

// Of the text in `file`.
Result<int> RunPplOn(const ModelOptions& model, const std::string& file, PplOptions ppl, EvalPace* pace) {
  ppl.backend = model.backend;
  ppl.rope = model.rope.Text();
  std::sort(ppl.lengths.begin(), ppl.lengths.end());
  LH_ASSIGN(ppl.text, ReadUtf8File(file));
  ppl.text_name = std::filesystem::path(file).filename().string();

  PplReport report(pace);
  std::vector<PplRecord> records;
  const int64_t longest = ppl.lengths.empty() ? 0 : ppl.lengths.back();
  const Status status = RunPpl(ppl, report.Hooks(model, longest), records);
  report.FinishProgress();
  std::string table;
  if (!records.empty()) {
    const PplSetup& setup = records[0].setup;
    table = fmt::format(
        "perplexity (95% interval) of the last {} tokens of each length, {} of {}, {}, compute {}, kv {}\n{}",
        ppl.n_score, DescribeSamples(ppl), setup.text, setup.model.model, setup.model.compute, setup.model.kv,
        PplTable(records, ppl.attention, ppl.lengths));
  }
  return FinishEval(status, table, records, ppl.out_dir);
}

Result<int> RunPplCommand(PplCommandOptions options) {
  options.ppl.attention = ListSpecs(options.eval);
  LH_ASSIGN(options.ppl.lengths, ListLengths(options.eval));
  LH_ASSIGN(options.ppl.shard, ParseShard(options.shard));
  return RunPplOn(options.eval.model, options.file, std::move(options.ppl), /*pace=*/nullptr);
}

void AddPplOptions(CLI::App& app, PplCommandOptions& options) {
  PplOptions& ppl = options.ppl;
  AddEvalOptions(app, options.eval, "lengths in tokens, those scored included; k is 1024", "1k,2k,4k,8k");
  app.add_option("--text", options.file,
                 "a long text, UTF-8 ('sh tools/eval/text.sh austen FILE' writes Jane Austen's novels)")
      ->required()
      ->type_name("FILE")
      ->group(kExperimentGroup);
  app.add_option(
         "--samples", ppl.n_samples,
         "pieces of the text, evenly spread: piece s begins at s/N of it; they must not overlap at the "
         "longest length")
      ->type_name("N")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_option("--score", ppl.n_score, "tokens that are scored at the end of each length")
      ->type_name("S")
      ->capture_default_str()
      ->group(kExperimentGroup);
  AddPartOptions(app, options.shard, ppl.retry_failed);
  AddOutOption(app, ppl.out_dir, "ppl");
  app.footer(
      R"(Of each piece and length n the first n - S tokens are read as prompt, and the S after them are fed one by one,
as if the model had answered with them. Perplexity is exp(mean of -log p) over these tokens of all pieces, each
given everything before it in its piece. A piece is read once for all lengths: on the way each length scores on
a fork of the session. Where calls of the model begin and end matters to esa, infllm, landmark and lm-infinite; 'calls'
(ppl.jsonl, ppl.csv) says where those that read the prompt ended, and other calls are another case. Methods that
follow the text's length (dynamic-ntk; self-extend,group=auto) are told n, and read a piece anew for each length.

The interval is that of the mean over the scored tokens as if they were independent, which tokens of one piece
are not quite: more pieces are worth more than more tokens of each. All methods score the same tokens, so at one
length they differ more surely than their intervals say; different lengths score different tokens.

Examples:
  longheads eval ppl --text book.txt --attn 'full;longheads' --lengths 1k,4k,16k --samples 4 --out results
  longheads eval ppl -m model.gguf --text book.txt --attn quest --attn moba,top_k=4 --lengths 8k --score 512)");
}

}  // namespace

SuiteExperiment PplExperiment() {
  return {.options = {{"text", "FILE", "", "a long text; without it, the haystack of the tasks"},
                      {"lengths", "N,N,...", "1k,2k,4k,8k", "lengths in tokens, those scored included"},
                      {"samples", "N", "1", "pieces of the text, evenly spread"},
                      {"score", "S", "256", "how many of the last tokens are scored"}},
          .make = [](const ModelOptions& model, const SuiteTask& task,
                     const SuiteStepOptions& step) -> Result<SuiteStep> {
            const std::vector<TaskOption> known = PplExperiment().options;
            TaskOptions o(known, task.options);
            PplOptions ppl{.attention = task.attention,
                           .lengths = o.Counts("lengths", 0, INT64_MAX),
                           .n_samples = o.Count("samples", 0, INT64_MAX),
                           .n_score = o.Count("score", 0, INT64_MAX),
                           .text = {},
                           .text_name = {},
                           .out_dir = step.out_dir,
                           .rope = {},
                           .shard = step.shard,
                           .retry_failed = step.retry_failed,
                           .keep_going = true};
            LH_TRY(o.status());
            std::ranges::sort(ppl.lengths);
            const std::string file = o.Text("text").empty() ? DefaultHaystackPath() : o.Text("text");
            if (o.Text("text").empty()) {
              LH_TRY(Haystack::Load(""));  // it says how to get it
            } else {
              LH_TRY(ReadUtf8File(file));
            }
            return SuiteStep{
                .run = [model, file, ppl, pace = step.pace] { return RunPplOn(model, file, ppl, pace); },
                .tokens = TokensOf(ppl)};
          }};
}

void AddPplCommand(CLI::App& eval, Command& command) {
  CLI::App* const app = eval.add_subcommand("ppl", "Perplexity of a long text, over methods and lengths");
  const auto options = std::make_shared<PplCommandOptions>();
  AddPplOptions(*app, *options);
  app->callback([options, &command] { command = [options] { return RunPplCommand(*options); }; });
}

}  // namespace longheads
