// longheads ask: questions to a text that was read into a context file.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/seconds.h"
#include "cli/answer_options.h"
#include "cli/command.h"
#include "cli/context_reading.h"
#include "cli/counters.h"
#include "cli/interrupt.h"
#include "cli/kv_traffic.h"
#include "cli/model_options.h"
#include "cli/out_file.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "engine/context.h"
#include "engine/selection_trace.h"
#include "tokenizer/chat_prompt.h"

namespace longheads {
namespace {

struct AskOptions {
  ModelOptions model;
  AnswerOptions answer;
  std::string path;
  std::vector<std::string> questions;
  std::string trace;
  bool thread = false;
  bool replace_invalid = false;
  bool json = false;
  bool quiet = false;
};

std::string ErrorJson(const std::string& question, const Error& error) {
  const nlohmann::json result = {{"question", question}, {"error", error.message}};
  return result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Behind the text, or behind an answer to an earlier question.
Result<std::vector<TokenId>> Encode(const Engine& engine, const std::string& question, bool chat,
                                    bool after_answer) {
  if (chat && after_answer) return EncodeChatTurn(engine.tokenizer(), *engine.chat_template(), question);
  if (chat) return EncodeChatEnding(engine.tokenizer(), *engine.chat_template(), "\n\n" + question);
  return engine.tokenizer().Encode("\n\n" + question, {.goes_on = true});
}

class Asking {
 public:
  Asking(Engine& engine, const AskOptions& options, bool chat, Session text)
      : engine_(engine),
        options_(options),
        chat_(chat),
        text_(std::move(text)),
        thread_(engine.Fork(text_)) {}

  // On an error the thread is as it was before the question.
  Status Ask(const std::string& question) {
    Session session = engine_.Fork(options_.thread ? thread_ : text_);
    const bool after_answer = options_.thread && n_asked_ > 0;
    const int64_t before = session.size();
    LH_ASSIGN(std::vector<TokenId> tokens, Encode(engine_, question, chat_, after_answer));
    LH_TRY(SayWhatIsLeftOut(engine_, question, options_.quiet, "the question"));
    // What ended the last answer was not read yet.
    tokens.insert(tokens.begin(), unread_.begin(), unread_.end());
    const int64_t n_most = options_.answer.max_tokens;
    LH_TRY(engine_.CheckMemory(session, static_cast<int64_t>(tokens.size()) + n_most, n_most));
    std::unique_ptr<SelectionTrace> trace;
    if (!options_.trace.empty()) {
      std::vector<TokenId> all = session.tokens();
      all.insert(all.end(), tokens.begin(), tokens.end());
      LH_ASSIGN(trace, SelectionTrace::Start(engine_,
                                             {.path = options_.trace,
                                              .program = "longheads " LONGHEADS_VERSION,
                                              .attention = engine_.attention_spec()},
                                             all));
    }
    const KvTraffic traffic_before = engine_.kv_traffic();
    const auto start = std::chrono::steady_clock::now();
    LH_ASSIGN(const std::vector<float> hidden,
              engine_.Prefill(session, tokens, Outputs::kLast, {.cancel = &InterruptToken()}));
    Status written;
    bool any_text = false;
    const Result<Generated> generated = engine_.Generate(session, hidden,
                                                         {.max_tokens = options_.answer.max_tokens,
                                                          .sampling = options_.answer.sampling,
                                                          .cancel = &InterruptToken(),
                                                          .on_token = [&](TokenId, std::string_view text) {
                                                            if (options_.json || text.empty()) return true;
                                                            any_text = true;
                                                            WriteOutput(text);
                                                            written = FlushOutput();
                                                            return written.has_value();
                                                          }});
    if (!generated) {
      if (any_text) Print("\n");
      return tl::unexpected<Error>(generated.error());
    }
    LH_TRY(written);
    const nlohmann::json counters = CountersJson(engine_, session);
    if (options_.thread) {
      const auto n_kept = static_cast<std::size_t>(session.size() - before) - tokens.size();
      unread_ = std::vector<TokenId>(generated->tokens.begin() + static_cast<std::ptrdiff_t>(n_kept),
                                     generated->tokens.end());
      thread_ = std::move(session);
      ++n_asked_;
    }
    const double seconds = SecondsSince(start);
    if (options_.json) {
      const nlohmann::json result = {{"question", question},
                                     {"answer", generated->text},
                                     {"stop", ReasonName(generated->reason)},
                                     {"text_tokens", text_.size()},
                                     {"answer_tokens", generated->tokens.size()},
                                     {"tokens", generated->tokens},
                                     {"seconds", seconds},
                                     // Of this question and answer.
                                     {"kv_traffic", TrafficJson(engine_.kv_traffic() - traffic_before)},
                                     // Of the whole session: the text, and what was asked and answered.
                                     {"counters", counters}};
      Print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      Print("\n");
    }
    LH_TRY(FlushOutput());
    if (!options_.quiet) {
      Note("answered in {:.1f} s{}\n", seconds, HowItEnded(generated->reason));
    }
    if (trace) {
      LH_TRY(trace->Finish(generated->tokens));
      if (!options_.quiet) Note("trace: {}, {}\n", options_.trace, FormatBytes(trace->bytes()));
    }
    if (generated->reason == StopReason::kCancelled) return MakeError(ErrorKind::kCancelled, "interrupted");
    return {};
  }

 private:
  Engine& engine_;
  const AskOptions& options_;
  bool chat_;
  Session text_;
  Session thread_;
  std::vector<TokenId> unread_;  // of the thread's last answer: what nothing has followed yet
  int64_t n_asked_ = 0;          // of the thread
};

Status CheckQuestion(const std::string& question, const AskOptions& options) {
  if (question.find_first_not_of(" \t\r\n") == std::string::npos)
    return InvalidInput("the question is empty");
  std::string note;
  LH_TRY(CheckUtf8(question, options.replace_invalid, note, "the question"));
  if (!note.empty() && !options.quiet) Note("{}\n", note);
  return {};
}

// A question that has no answer, as where a page that it chose is damaged, does not keep the others from
// theirs.
Status AskAll(Asking& asking, const AskOptions& options) {
  int64_t n_asked = 0;
  int64_t n_failed = 0;
  bool may_be_damaged = false;  // the file, by what failed
  const auto ask = [&](const std::string& question) -> Status {
    ++n_asked;
    const Status sound = CheckQuestion(question, options);
    const Status asked = [&]() -> Status {
      if (!sound) return sound;
      try {
        return asking.Ask(question);
      } catch (const std::bad_alloc&) {
        return tl::unexpected<Error>(Engine::OutOfMemory());
      }
    }();
    if (asked || asked.error().kind == ErrorKind::kCancelled || options.questions.size() == 1) return asked;
    ++n_failed;
    may_be_damaged = may_be_damaged || (sound && asked.error().kind != ErrorKind::kOutOfMemory);
    if (options.json) Print("{}\n", ErrorJson(question, asked.error()));
    LH_TRY(FlushOutput());  // where this is what failed, nobody would see another answer
    Note("longheads: question {}: {}\n", n_asked, asked.error().message);
    return {};
  };
  for (const std::string& question : options.questions) {
    if (options.questions.size() > 1 && !options.json) Print("> {}\n", question);
    LH_TRY(ask(question));
  }
  if (options.questions.empty()) {
    const bool at_terminal = isatty(STDIN_FILENO) == 1;
    if (at_terminal && !options.quiet) Note("a question a line; Ctrl-D ends\n");
    std::string line;
    const auto next = [&] {
      if (at_terminal && !options.quiet) Note("> ");
      return !InterruptToken().cancelled() && std::getline(std::cin, line);
    };
    while (next()) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (!at_terminal && !options.json) Print("> {}\n", line);
      LH_TRY(ask(line));
    }
    if (at_terminal && !options.quiet) Note("\n");
    if (n_asked == 0 && !at_terminal && !InterruptToken().cancelled()) {
      return InvalidInput("no question: give one with -q, or one a line on standard input");
    }
  }
  if (n_failed == 0) return {};
  const std::string advice =
      may_be_damaged
          ? fmt::format("; 'longheads context verify {}' finds all that is damaged in the file", options.path)
          : "";
  return MakeError(ErrorKind::kIo, fmt::format("{} of {} questions have no answer, for the reasons above{}",
                                               n_failed, n_asked, advice));
}

Result<int> Ask(const AskOptions& options) {
  LH_TRY(Check(options.answer));
  if (const std::string ignored = WhatHasNoEffect(options.answer); !ignored.empty() && !options.quiet)
    Note("note: {}\n", ignored);
  if (!options.trace.empty() && options.questions.size() != 1) {
    return InvalidInput("--trace records one answer: give one question with -q");
  }
  LH_ASSIGN(ContextSetup setup, ReadContextSetup(options.path));
  LH_ASSIGN(const EngineOptions given, EngineOptionsOf(options.model));
  LH_ASSIGN(EngineOptions load, OptionsFor(setup, given));
  LH_TRY(CheckNotInput("--trace", options.trace, options.path, "the context file"));
  LH_TRY(CheckNotInput("--trace", options.trace, load.model_path, "the model file"));
  LimitPages(load);
  const auto start = std::chrono::steady_clock::now();
  LH_ASSIGN(const std::unique_ptr<Engine> engine, LoadEngine(load));
  const double load_seconds = SecondsSince(start);
  InterruptToken();  // from here on Ctrl-C ends the answer, or the wait for a question, and not the process
  LH_ASSIGN(Session text, OpenContext(*engine, options.path, &setup));
  if (setup.chat && engine->chat_template() == nullptr) return Unsupported(engine->chat_template_error());
  if (!options.quiet) {
    Note("{}: {} tokens of {}, read with {}, {}; opened in {:.2f} s (the model in {:.2f} s)\n", options.path,
         text.size(), setup.source.empty() ? "a text" : OnOneLine(setup.source), OnOneLine(setup.attention),
         engine->DescribeKernels(), SecondsSince(start) - load_seconds, load_seconds);
    for (const std::string& warning : engine->Warnings(text.size())) Note("warning: {}\n", warning);
  }
  Asking asking(*engine, options, setup.chat, std::move(text));
  LH_TRY(AskAll(asking, options));
  if (!options.quiet) Note("{}\n", DescribeTraffic(*engine, /*seconds=*/0));
  return InterruptToken().cancelled() ? kInterruptedStatus : 0;
}

}  // namespace

void AddAskCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand("ask", "Answers questions about a text that was ingested");
  const auto options = std::make_shared<AskOptions>();
  app->add_option("FILE", options->path, "the context file")->type_name("FILE")->required();
  app->add_option("-q,--question", options->questions,
                  "a question; several, each with its -q, are answered one by one, each from the text alone. "
                  "Without it, "
                  "each line of standard input is one")
      ->type_name("TEXT")
      ->allow_extra_args(false)  // what follows may be the file
      ->group("Text");
  app->add_flag("--chat", options->thread, "each question follows the answer to the one before")
      ->group("Text");
  app->add_flag("--replace-invalid", options->replace_invalid, "read U+FFFD where a question is not UTF-8")
      ->group("Text");
  app->add_option(
         "--trace", options->trace,
         "record what each head chose and saw for every token of the answer, for 'longheads view' (takes one "
         "-q)")
      ->type_name("FILE")
      ->group("Output");
  AddModelOptions(*app, options->model, /*with_attention=*/false);
  AddAnswerOptions(*app, options->answer);
  app->add_flag("--json", options->json, "print one JSON object for each question")->group("Output");
  app->add_flag("--quiet", options->quiet, "nothing on stderr but errors")->group("Output");
  app->footer(
      "Method, RoPE, --compute and --kv-type are the file's; without --kv-ram, half of the memory that is "
      "free may be\n"
      "taken for pages of the file. A question that has no answer, as where what it needs is damaged, ends "
      "with\nan error, and the others go on; the exit status is 2 then.\n\nExamples:\n"
      "  longheads ask book.lhctx -q \"Who stole the ring?\"\n"
      "  longheads ask book.lhctx --chat < questions.txt\n"
      "  longheads ask book.lhctx -q \"Who stole the ring?\" --trace ring.trace && longheads view ring.trace "
      "-o ring.html");
  app->callback([options, &command] { command = [options] { return Ask(*options); }; });
}

}  // namespace longheads
