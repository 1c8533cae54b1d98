#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.h"
#include "base/seconds.h"
#include "cli/answer_options.h"
#include "cli/command.h"
#include "cli/counters.h"
#include "cli/interrupt.h"
#include "cli/kv_traffic.h"
#include "cli/model_options.h"
#include "cli/out_file.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "engine/selection_trace.h"

namespace longheads {
namespace {

struct RunOptions {
  ModelOptions model;
  TextInput input;
  std::optional<std::string> question;
  AnswerOptions answer;
  bool chat = false;
  bool no_chat = false;
  bool replace_invalid = false;
  bool json = false;
  bool quiet = false;
  std::string trace;
  bool trace_prompt = false;
};

// Every note goes to stderr: stdout carries the answer alone.
template <typename... Args>
void NoteUnlessQuiet(const RunOptions& options, fmt::format_string<Args...> format, Args&&... args) {
  if (!options.quiet) WriteNote(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

// The text, then a blank line and the question, as one message.
Result<std::string> ReadPrompt(const RunOptions& options) {
  LH_ASSIGN(std::string text, ReadText(options.input));
  if (options.question) {
    if (text.empty()) NoteUnlessQuiet(options, "note: the text is empty; the question is all that is read");
    text += (text.empty() ? "" : "\n\n") + *options.question;
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return InvalidInput("the prompt is empty: there is nothing to read");
  }
  std::string note;
  LH_TRY(CheckUtf8(text, options.replace_invalid, note));
  if (!note.empty()) NoteUnlessQuiet(options, "{}", note);
  return text;
}

Result<int> Run(const RunOptions& options) {
  LH_TRY(Check(options.answer));
  if (const std::string ignored = WhatHasNoEffect(options.answer); !ignored.empty())
    NoteUnlessQuiet(options, "note: {}", ignored);
  if (options.question && options.question->find_first_not_of(" \t\r\n") == std::string::npos)
    return InvalidInput("the question is empty: leave -q out where there is none");
  if (!options.trace.empty()) {
    LH_ASSIGN(const std::string model, FindModel(options.model.model));
    LH_TRY(CheckNotInput("--trace", options.trace, model, "the model file"));
    LH_TRY(CheckNotInput("--trace", options.trace, options.input.file, "the file of -f"));
  }
  LH_ASSIGN(const std::string prompt, ReadPrompt(options));
  const auto start = std::chrono::steady_clock::now();
  LH_ASSIGN(const std::unique_ptr<Engine> engine, LoadEngine(options.model));
  const CancelToken& interrupt = InterruptToken();  // while it loads, Ctrl-C ends the process
  if (options.chat && engine->chat_template() == nullptr) return Unsupported(engine->chat_template_error());
  const bool chat = options.chat || (!options.no_chat && engine->chat_template() != nullptr);
  if (!chat && !options.no_chat) {
    // An unknown template must not silently become a plain prompt.
    if (engine->file().Find("tokenizer.chat_template") != nullptr)
      return Unsupported(engine->chat_template_error());
    NoteUnlessQuiet(options, "note: the model has no chat template; the text is continued as it stands");
  }
  LH_ASSIGN(const std::vector<TokenId> tokens, engine->EncodePrompt(prompt, chat, &interrupt));
  LH_ASSIGN(const std::size_t n_lost, engine->tokenizer().BytesWithoutToken(prompt, &interrupt));
  if (n_lost > 0)
    NoteUnlessQuiet(options, "note: {} bytes of the text have no token in this vocabulary and are left out",
                    n_lost);
  const int64_t n_prompt = static_cast<int64_t>(tokens.size());
  const int64_t n_most = n_prompt + options.answer.max_tokens;
  LH_TRY(engine->ExpectText(n_most));
  NoteUnlessQuiet(options, "{}: {} tokens, {} threads, {}", engine->file().name(), n_prompt,
                  engine->threads(), engine->DescribeKernels());
  NoteUnlessQuiet(options, "{}", engine->ExplainAttention(n_most));
  for (const std::string& warning : engine->Warnings(n_most))
    NoteUnlessQuiet(options, "warning: {}", warning);
  if (!options.quiet && engine->PlanMemory(n_most).disk > 0) NoteDisk(engine->kv_folder());
  Session session = engine->NewSession();
  LH_TRY(engine->CheckMemory(session, n_most, options.answer.max_tokens));
  LH_TRY(FitBlocks(*engine, options.model, n_most, options.quiet));
  const double load_seconds = SecondsSince(start);

  std::unique_ptr<SelectionTrace> trace;
  if (!options.trace.empty()) {
    LH_ASSIGN(trace, SelectionTrace::Start(*engine,
                                           {.path = options.trace,
                                            .program = "longheads " LONGHEADS_VERSION,
                                            .attention = options.model.attention,
                                            .prompt = options.trace_prompt},
                                           tokens));
  }
  Progress progress("reading", n_prompt);
  const Result<std::vector<float>> hidden =
      engine->Prefill(session, tokens, Outputs::kLast, {.cancel = &interrupt, .progress = [&](double share) {
                                                          if (!options.quiet) progress(share);
                                                        }});
  progress.Finish();
  if (!hidden) return tl::unexpected<Error>(hidden.error());
  const double prefill_seconds = progress.seconds();

  const auto decode_start = std::chrono::steady_clock::now();
  Status written;
  const Result<Generated> generated = engine->Generate(session, *hidden,
                                                       {.max_tokens = options.answer.max_tokens,
                                                        .sampling = options.answer.sampling,
                                                        .cancel = &interrupt,
                                                        .on_token = [&](TokenId, std::string_view text) {
                                                          if (options.json || text.empty()) return true;
                                                          WriteOutput(text);
                                                          written = FlushOutput();
                                                          return written.has_value();
                                                        }});
  if (!generated) return tl::unexpected<Error>(generated.error());
  LH_TRY(written);
  const double decode_seconds = SecondsSince(decode_start);
  const int64_t n_answer = static_cast<int64_t>(generated->tokens.size());
  const double prefill_speed = static_cast<double>(n_prompt) / prefill_seconds;
  const double decode_speed = static_cast<double>(n_answer) / decode_seconds;
  if (options.json) {
    const nlohmann::json result = {
        {"answer", generated->text},
        {"stop", ReasonName(generated->reason)},
        {"prompt_tokens", n_prompt},
        {"answer_tokens", n_answer},
        {"tokens", generated->tokens},
        {"attn", options.model.attention},
        {"model", engine->file().name()},
        {"chat", chat},
        {"threads", engine->threads()},
        {"kernels", engine->DescribeKernels()},
        {"seconds", {{"load", load_seconds}, {"prefill", prefill_seconds}, {"decode", decode_seconds}}},
        {"tokens_per_second", {{"prefill", prefill_speed}, {"decode", decode_speed}}},
        // Of all layers and KV heads, by the tokens of the answer but the first, which the prompt gives.
        {"keys_read", static_cast<int64_t>(engine->attention_counts().keys_read)},
        {"kv_traffic", TrafficJson(*engine)},
        {"counters", CountersJson(*engine, session)},
    };
    Print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    Print("\n");
  }
  LH_TRY(FlushOutput());
  NoteUnlessQuiet(options,
                  "read {} tokens in {:.1f} s ({:.0f} tokens/s), wrote {} in {:.1f} s ({:.0f} tokens/s){}",
                  n_prompt, prefill_seconds, prefill_speed, n_answer, decode_seconds, decode_speed,
                  HowItEnded(generated->reason));
  if (const std::string traffic = DescribeTraffic(*engine, prefill_seconds + decode_seconds);
      !traffic.empty())
    NoteUnlessQuiet(options, "{}", traffic);
  if (const std::string counters = DescribeCounters(*engine, session); !counters.empty())
    NoteUnlessQuiet(options, "{}", counters);
  if (trace) {
    LH_TRY(trace->Finish(generated->tokens));
    NoteUnlessQuiet(options, "trace: {}, {}", options.trace, FormatBytes(trace->bytes()));
  }
  return generated->reason == StopReason::kCancelled ? kInterruptedStatus : 0;
}

}  // namespace

void AddRunCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand("run", "Reads a text, however long, and answers");
  const auto options = std::make_shared<RunOptions>();
  AddTextInput(*app, options->input, "Text");
  app->add_option("-q,--question", options->question, "a question, put after the text and a blank line")
      ->type_name("TEXT")
      ->group("Text");
  app->add_flag("--chat", options->chat,
                "wrap the text in the model's chat template (the default where it has one)")
      ->group("Text");
  app->add_flag("--no-chat", options->no_chat, "continue the text as it stands")
      ->group("Text")
      ->excludes("--chat");
  app->add_flag("--replace-invalid", options->replace_invalid, "read U+FFFD where the text is not UTF-8")
      ->group("Text");
  AddModelOptions(*app, options->model);
  AddAnswerOptions(*app, options->answer);
  app->add_flag("--json", options->json, "print one JSON object: answer, counts, timings")->group("Output");
  app->add_flag("--quiet", options->quiet, "nothing on stderr but errors")->group("Output");
  app->add_option(
         "--trace", options->trace,
         "record what each head chose and saw for every token of the answer ('longheads view' shows it)")
      ->type_name("FILE")
      ->group("Output");
  app->add_flag("--trace-prompt", options->trace_prompt, "count it over the prompt's tokens too")
      ->group("Output")
      ->needs("--trace");
  app->footer(
      "Examples:\n"
      "  longheads run -f book.txt -q \"Who stole the ring?\"\n"
      "  longheads run -f log.txt -q \"What failed first?\" --attn longheads,window=2048\n"
      "  git log | longheads run - -q \"What changed last week?\"\n"
      "  longheads run --no-chat -p \"Once upon a time\" -n 50 --temp 0.8 --top-p 0.95");
  app->callback([options, &command] { command = [options] { return Run(*options); }; });
}

}  // namespace longheads
