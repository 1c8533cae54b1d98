#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/answer_options.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/passkey.h"
#include "program/eval_command.h"
#include "program/eval_options.h"
#include "program/eval_suite_command.h"

namespace longheads {
namespace {

struct PasskeyCommandOptions {
  EvalOptions eval;
  PasskeyOptions passkey;
  std::string shard = "1/1";
};

std::string Describe(const std::string& attention, const PasskeyCase& c) {
  return fmt::format("{}, {} tokens, depth {:.2f}", attention, c.length, c.depth());
}

// About so many tokens are read in one shard.
double TokensOf(const PasskeyOptions& o) {
  double tokens = 0;
  for (const int64_t length : o.lengths) tokens += static_cast<double>(length);
  return tokens * static_cast<double>(o.attention.size()) * static_cast<double>(o.n_depths) *
         static_cast<double>(o.n_repeats) / static_cast<double>(o.shard.count);
}

// Cases as they come, on stderr.
class PasskeyReport {
 public:
  // `pace` hears of every case that is run and does not fail; may be null.
  explicit PasskeyReport(EvalPace* pace) : pace_(pace) {}

  PasskeyHooks Hooks(const ModelOptions& model, int64_t longest) {
    return {
        .load = Loader(model),
        .on_method = [longest](const Engine& engine,
                               const std::string& attention) { AnnounceMethod(engine, attention, longest); },
        .on_prefill = [this](const std::string& attention, const PasskeyCase& c,
                             int64_t n_tokens) { return progress_.Start(Describe(attention, c), n_tokens); },
        .on_case = [this](const PasskeyRecord& record, bool from_file, int64_t done,
                          int64_t n_cases) { PrintCase(record, from_file, done, n_cases); },
        .cancel = &InterruptToken()};
  }

  void FinishProgress() { progress_.Finish(); }

 private:
  void PrintCase(const PasskeyRecord& r, bool from_file, int64_t done, int64_t n_cases) {
    progress_.Finish();
    const std::string place = fmt::format("[{}/{}] {}", done, n_cases, Describe(r.attention, r.which));
    if (!r.failed.empty()) {
      Note("{}: failed: {}; {}\n", place, r.failed,
           from_file ? "done before" : fmt::format("{:.1f} s", r.seconds));
      return;
    }
    if (!from_file && pace_ != nullptr) pace_->Add(r.seconds, r.which.length);
    Note("{}: {}, {}/{} digits forced, key {}, answer {}, {}\n", place, r.correct ? "right" : "wrong",
         r.digits_right, r.digits, r.key, QuoteAnswer(r.answer),
         from_file ? "done before"
                   : fmt::format("{:.1f} s ({} of {} tokens read before)", r.seconds, r.shared, r.tokens));
  }

  EvalPace* pace_;
  CaseProgress progress_;
};

Result<int> RunPasskeyOn(const ModelOptions& model, PasskeyOptions passkey, EvalPace* pace) {
  passkey.backend = model.backend;
  passkey.rope = model.rope.Text();
  int64_t longest = 0;
  for (const int64_t length : passkey.lengths) longest = std::max(longest, length);

  PasskeyReport report(pace);
  std::vector<PasskeyRecord> records;
  const Status status = RunPasskey(passkey, report.Hooks(model, longest), records);
  report.FinishProgress();
  std::string table;
  if (!records.empty()) {
    const PasskeySetup& setup = records[0].setup;
    table = fmt::format(
        "passkey, {} form, filler in {}, {}, compute {}, kv {}: free answers right, digits right when "
        "the answer is forced\n"
        "{}",
        PromptFormName(setup.style.form), setup.style.filler == PasskeyFiller::kLines ? "lines" : "one line",
        setup.model.model, setup.model.compute, setup.model.kv,
        PasskeyTable(records, passkey.attention, passkey.lengths));
  }
  return FinishEval(status, table, records, passkey.out_dir);
}

Result<int> RunPasskeyCommand(PasskeyCommandOptions options) {
  options.passkey.attention = ListSpecs(options.eval);
  LH_ASSIGN(options.passkey.lengths, ListLengths(options.eval));
  LH_ASSIGN(options.passkey.shard, ParseShard(options.shard));
  return RunPasskeyOn(options.eval.model, std::move(options.passkey), /*pace=*/nullptr);
}

void AddPasskeyOptions(CLI::App& app, PasskeyCommandOptions& options) {
  PasskeyOptions& passkey = options.passkey;
  AddEvalOptions(app, options.eval, "prompt lengths in tokens, met within 1%; k is 1024", "4k,8k,16k");
  app.add_option("--depths", passkey.n_depths,
                 "places of the key: (d + 1/2) / N of the filler stands before it, d = 0 .. N-1")
      ->type_name("N")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_option("--repeats", passkey.n_repeats, "keys for each length and depth")
      ->type_name("N")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_option("--seed", passkey.seed, "of the keys; a case's key depends on nothing but it and the case")
      ->check(CheckSeed)
      ->type_name("S")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_option("--form", passkey.form,
                 "plain: a completion that ends in \"The pass key is\"; chat: a question in the model's chat "
                 "template; auto: chat where the model has one")
      ->type_name("auto|plain|chat")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_option(
         "--filler", passkey.filler,
         "lines: the filler's five sentences are a line each time; line: all filler is one line, as in "
         "LongHeads' script")
      ->type_name("lines|line")
      ->capture_default_str()
      ->group(kExperimentGroup);
  app.add_option("-n,--predict", passkey.max_tokens,
                 fmt::format("most tokens of a free answer; 0: {} in the chat form, {} in the plain one",
                             kChatAnswerTokens, kPlainAnswerTokens))
      ->type_name("N")
      ->capture_default_str()
      ->group(kExperimentGroup);
  AddPartOptions(app, options.shard, passkey.retry_failed);
  AddOutOption(app, passkey.out_dir, "passkey");
  app.add_option(
         "--trace", passkey.trace_dir,
         "record what each head chose and saw in every case that is run, one file each with the key's place "
         "('longheads view' shows them)")
      ->type_name("DIR")
      ->group("Output");
  app.footer(
      "A five-digit key is said in a long filler text (the same five sentences, again and again) and asked "
      "for at its\nend. An answer is right when its first integer is the key; beside it stand the key's "
      "digits that the model\nwould write when the answer is forced. A case that fails (for want of memory) "
      "is kept with its reason and is "
      "neither\nright nor wrong.\n\n"
      "What a method's cases have in common is read once, where that changes no bit of them (it would for "
      "landmark,\nfor lm-infinite with top_k or a limit above local, and for dynamic-ntk that follows the "
      "text; "
      "infllm and esa\nshare whole steps), and each case's seconds are what was left to do; 'shared' "
      "(passkey.jsonl) and 'mean_shared'\n(passkey.csv) say how many tokens had been read before."
      "\n\nExamples:\n"
      "  longheads eval passkey --attn 'full;longheads' --lengths 4k,16k --depths 5 --out results\n"
      "  longheads eval passkey -m model.gguf --attn full --attn longheads,chunk=128 --lengths 2k --form "
      "plain");
}

}  // namespace

SuiteExperiment PasskeyExperiment() {
  return {.options = {{"lengths", "N,N,...", "4k,8k,16k", "prompt lengths in tokens, met within 1%"},
                      {"depths", "N", "10", "places of the key"},
                      {"repeats", "N", "1", "keys for each length and depth"},
                      {"seed", "S", "0", "of the keys"},
                      {"filler", "lines|line", "lines", "how the filler's sentences stand"},
                      {"predict", "N", "0", "most tokens of a free answer"}},
          .make = [](const ModelOptions& model, const SuiteTask& task,
                     const SuiteStepOptions& step) -> Result<SuiteStep> {
            const std::vector<TaskOption> known = PasskeyExperiment().options;
            TaskOptions o(known, task.options);
            PasskeyOptions passkey{.attention = task.attention,
                                   .lengths = o.Counts("lengths", 0, INT64_MAX),
                                   .n_depths = o.Count("depths", 0, INT64_MAX),
                                   .n_repeats = o.Count("repeats", 0, INT64_MAX),
                                   .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX)),
                                   .form = task.form,
                                   .filler = o.Choice("filler"),
                                   .max_tokens = o.Count("predict", 0, INT64_MAX),
                                   .out_dir = step.out_dir,
                                   .rope = {},
                                   .trace_dir = {},
                                   .shard = step.shard,
                                   .retry_failed = step.retry_failed,
                                   .keep_going = true};
            LH_TRY(o.status());
            return SuiteStep{
                .run = [model, passkey, pace = step.pace] { return RunPasskeyOn(model, passkey, pace); },
                .tokens = TokensOf(passkey)};
          }};
}

void AddPasskeyCommand(CLI::App& eval, Command& command) {
  CLI::App* const app = eval.add_subcommand(
      "passkey", "Hides a number in a long text and asks for it, over methods, lengths and depths");
  const auto options = std::make_shared<PasskeyCommandOptions>();
  AddPasskeyOptions(*app, *options);
  app->callback([options, &command] { command = [options] { return RunPasskeyCommand(*options); }; });
}

}  // namespace longheads
