#include "program/eval_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "attention/spec.h"
#include "base/bytes.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "eval/passkey.h"

namespace longheads {
namespace {

struct PasskeyCommandOptions {
  ModelOptions model;
  std::vector<std::string> attention = {"full", "auto"};
  std::vector<std::string> lengths = {"4k", "8k", "16k"};
  PasskeyOptions passkey;
};

// Of values that were given in several options, each of them a list itself.
Result<std::vector<int64_t>> ParseLengths(const std::vector<std::string>& lists) {
  std::vector<int64_t> lengths;
  for (const std::string& list : lists) {
    std::istringstream parts(list);
    for (std::string part; std::getline(parts, part, ',');) {
      const Result<int64_t> length = ParseCount(part);
      if (!length) return InvalidInput("--lengths: " + length.error().message);
      lengths.push_back(*length);
    }
  }
  return lengths;
}

Status WriteOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return MakeError(ErrorKind::kIo, "the table could not be written to standard output");
}

std::string Describe(const std::string& attention, const PasskeyCase& c) {
  return fmt::format("{}, {} tokens, depth {:.2f}", attention, c.length, c.depth());
}

// An answer on one line.
std::string Quote(const std::string& answer) {
  std::string quoted = "\"";
  for (const char c : answer) {
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return quoted + '"';
}

// Cases as they come, on stderr.
class PasskeyReport {
 public:
  PasskeyHooks Hooks(const ModelOptions& model, int64_t longest) {
    return {.load =
                [&model](const std::string& attention) {
                  ModelOptions options = model;
                  options.attention = attention;
                  return LoadEngine(options);
                },
            .on_method =
                [longest](const Engine& engine, const std::string& attention) {
                  const std::string explained = engine.ExplainAttention();
                  const std::string warning = engine.AttentionWarning(longest);
                  fmt::print(stderr, "{}: {}{}{}{}\n", attention, engine.DescribeKernels(),
                             explained.empty() ? "" : "; ", explained,
                             warning.empty() ? "" : "\nwarning: " + warning);
                },
            .on_prefill =
                [this](const std::string& attention, const PasskeyCase& c, int64_t n_tokens) {
                  progress_.emplace(Describe(attention, c), n_tokens);
                  return std::function<void(double)>([this](double share) { (*progress_)(share); });
                },
            .on_case = [this](const PasskeyRecord& record, bool from_file, int64_t done,
                              int64_t n_cases) { PrintCase(record, from_file, done, n_cases); },
            .cancel = &InterruptToken()};
  }

  void FinishProgress() {
    if (progress_) progress_->Finish();
    progress_.reset();
  }

 private:
  void PrintCase(const PasskeyRecord& r, bool from_file, int64_t done, int64_t n_cases) {
    FinishProgress();
    fmt::print(stderr, "[{}/{}] {}: {}, {}/{} digits forced, key {}, answer {}, {}\n", done, n_cases,
               Describe(r.attention, r.which), r.correct ? "right" : "wrong", r.digits_right, r.digits, r.key,
               Quote(r.answer),
               from_file
                   ? "done before"
                   : fmt::format("{:.1f} s ({} of {} tokens read before)", r.seconds, r.shared, r.tokens));
  }

  std::optional<PrefillProgress> progress_;
};

Result<int> RunPasskeyCommand(PasskeyCommandOptions options) {
  PasskeyOptions& passkey = options.passkey;
  passkey.backend = options.model.backend;
  passkey.rope = options.model.rope.Text();
  for (const std::string& list : options.attention) {
    for (std::string& spec : SplitSpecs(list)) passkey.attention.push_back(std::move(spec));
  }
  LH_ASSIGN(passkey.lengths, ParseLengths(options.lengths));
  int64_t longest = 0;
  for (const int64_t length : passkey.lengths) longest = std::max(longest, length);

  PasskeyReport report;
  std::vector<PasskeyRecord> records;
  Status status = RunPasskey(passkey, report.Hooks(options.model, longest), records);
  report.FinishProgress();
  if (!records.empty()) {
    const PasskeySetup& setup = records[0].setup;
    const Status written = WriteOut(fmt::format(
        "passkey, {} form, filler in {}, {}, compute {}, kv {}: free answers right, digits right when "
        "the answer is forced\n"
        "{}",
        PasskeyFormName(setup.style.form), setup.style.filler == PasskeyFiller::kLines ? "lines" : "one line",
        setup.model.model, setup.model.compute, setup.model.kv,
        PasskeyTable(records, passkey.attention, passkey.lengths)));
    if (status) status = written;
  }
  if (!status && status.error().kind == ErrorKind::kCancelled) {
    return MakeError(ErrorKind::kCancelled,
                     fmt::format("interrupted with {} cases done{}", records.size(),
                                 passkey.out_dir.empty() ? "" : "; the same command goes on from there"));
  }
  if (!status) return tl::unexpected<Error>(status.error());
  return 0;
}

void AddPasskeyOptions(CLI::App& app, PasskeyCommandOptions& options) {
  PasskeyOptions& passkey = options.passkey;
  AddModelOptions(app, options.model, /*with_attention=*/false);
  const std::string group = "Experiment";
  app.add_option("--attn", options.attention,
                 "attention methods, separated by ';' or by repeating the option ('longheads methods' lists "
                 "them)")
      ->type_name("SPECS")
      ->allow_extra_args(false)
      ->default_str("full;auto")
      ->group(group);
  app.add_option("--lengths", options.lengths, "prompt lengths in tokens, met within 1%; k is 1024")
      ->type_name("N,N,...")
      ->allow_extra_args(false)
      ->default_str("4k,8k,16k")
      ->group(group);
  app.add_option("--depths", passkey.n_depths,
                 "places of the key: (d + 1/2) / N of the filler stands before it, d = 0 .. N-1")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option("--repeats", passkey.n_repeats, "keys for each length and depth")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", passkey.seed, "of the keys; a case's key depends on nothing but it and the case")
      ->type_name("S")
      ->capture_default_str()
      ->group(group);
  app.add_option("--form", passkey.form,
                 "plain: a completion that ends in \"The pass key is\"; chat: a question in the model's chat "
                 "template; auto: chat where the model has one")
      ->type_name("auto|plain|chat")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--filler", passkey.filler,
         "lines: the filler's five sentences are a line each time; line: all filler is one line, as in "
         "LongHeads' script")
      ->type_name("lines|line")
      ->capture_default_str()
      ->group(group);
  app.add_option("-n,--predict", passkey.max_tokens,
                 fmt::format("most tokens of a free answer; 0: {} in the chat form, {} in the plain one",
                             kChatAnswerTokens, kPlainAnswerTokens))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--out", passkey.out_dir,
         "keep DIR/passkey.jsonl (a line for each case, as it comes; cases it holds are not run again) "
         "and DIR/passkey.csv")
      ->type_name("DIR")
      ->group("Output");
  app.footer(
      "A five-digit key is said in a long filler text (the same five sentences, again and again) and asked "
      "for at its\nend. An answer is right when its first integer is the key; beside it stand the key's "
      "digits that the model\nwould write when the answer is forced.\n\n"
      "What a method's cases have in common is read once, and each case's seconds are what was left to do; "
      "'shared'\n(passkey.jsonl) and 'mean_shared' (passkey.csv) say how many tokens had been read before."
      "\n\nExamples:\n"
      "  longheads eval passkey --attn 'full;longheads' --lengths 4k,16k --depths 5 --out results\n"
      "  longheads eval passkey -m model.gguf --attn full --attn longheads,chunk=128 --lengths 2k --form "
      "plain");
}

}  // namespace

void AddEvalCommand(CLI::App& program, Command& command) {
  CLI::App* const eval =
      program.add_subcommand("eval", "Runs an experiment of the long-context papers on a model");
  eval->require_subcommand(1);
  CLI::App* const app = eval->add_subcommand(
      "passkey", "Hides a number in a long text and asks for it, over methods, lengths and depths");
  const auto options = std::make_shared<PasskeyCommandOptions>();
  AddPasskeyOptions(*app, *options);
  app->callback([options, &command] { command = [options] { return RunPasskeyCommand(*options); }; });
}

}  // namespace longheads
