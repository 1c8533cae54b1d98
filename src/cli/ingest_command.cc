// longheads ingest: reads a text once, into a context file that `longheads ask` opens.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/seconds.h"
#include "cli/command.h"
#include "cli/context_reading.h"
#include "cli/interrupt.h"
#include "cli/kv_traffic.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "engine/context.h"
#include "formats/context_reader.h"
#include "tokenizer/chat_prompt.h"

namespace longheads {
namespace {

// What blocks are fitted to without --kv-ram: not to the memory that happens to be free, so that the same
// text gives the same file, by the same --kv-blocks.
constexpr int64_t kBlockRam = int64_t{1} << 30;

struct IngestOptions {
  ModelOptions model;
  TextInput input;
  std::string out;
  int64_t answer_room = 4096;
  bool no_chat = false;
  bool replace_invalid = false;
  bool restart = false;
  bool quiet = false;
};

// Before anything is read: a path that cannot be looked up, as where its name is too long.
Status CheckCanBeLookedUp(const std::string& out) {
  std::error_code error;
  for (const std::string& path : {out, ContextWriter::PartialPath(out)}) {
    if (std::filesystem::status(path, error).type() == std::filesystem::file_type::none)
      return InvalidInput(fmt::format("-o: cannot look up {}: {}", path, error.message()));
  }
  return {};
}

// The text up to where a question will follow: white space at its end would part from the words it belongs
// to.
Result<std::vector<TokenId>> Encode(const Engine& engine, const std::string& text, bool chat) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return InvalidInput("the text is empty: there is nothing to read");
  const std::string_view trimmed = std::string_view(text).substr(0, end + 1);
  const CancelToken* const cancel = &InterruptToken();
  if (chat) return EncodeChatOpening(engine.tokenizer(), *engine.chat_template(), trimmed, cancel);
  return engine.tokenizer().Encode(trimmed, {.add_bos = true, .cancel = cancel});
}

// Whether it was read with the same options; who wrote it, where model and text came from, and in how much
// memory, does not matter, nor what "auto" stood for then.
bool SameOptions(const IngestOptions& options, ContextSetup before, const ContextSetup& setup) {
  if (options.model.compute == "auto") before.compute = setup.compute;
  if (options.model.kv_type == "auto") before.kv_type = setup.kv_type;
  before.program = setup.program;
  before.model = setup.model;
  before.source = setup.source;
  before.blocks = setup.blocks;
  return WriteContextSetup(before) == WriteContextSetup(setup);
}

// How many tokens the finished file holds where it holds this very text, read with these options. More than
// the text's where others were appended.
std::optional<std::size_t> HoldsThisText(const IngestOptions& options, const ContextSetup& setup,
                                         std::span<const TokenId> tokens) {
  const auto reader = ContextReader::Open(options.out, {});
  if (!reader) return std::nullopt;  // Begin says what is to be said
  const auto before = ParseContextSetup(options.out, reader->header().metadata);
  if (!before || !SameOptions(options, *before, setup)) return std::nullopt;
  const std::vector<int32_t>& there = reader->contents().tokens;
  if (std::ranges::mismatch(tokens, there).in1 != tokens.end()) return std::nullopt;
  return there.size();
}

// The same, where nothing is to be done then: an earlier command may have been killed behind the last of its
// writes.
std::optional<std::size_t> ThereAlready(const IngestOptions& options, const ContextSetup& setup,
                                        std::span<const TokenId> tokens) {
  if (options.restart || !std::filesystem::exists(options.out) ||
      std::filesystem::exists(ContextWriter::PartialPath(options.out))) {
    return std::nullopt;
  }
  return HoldsThisText(options, setup, tokens);
}

// Said where a text that was read to its end is to be replaced by another, which happens once that one is
// read.
std::string WhatIsReplaced(const IngestOptions& options, const ContextSetup& setup,
                           std::span<const TokenId> tokens) {
  if (options.restart || !std::filesystem::exists(options.out) || HoldsThisText(options, setup, tokens))
    return "";
  const auto reader = ContextReader::Open(options.out, {});
  if (!reader) return "";
  const auto before = ParseContextSetup(options.out, reader->header().metadata);
  return fmt::format(
      "{} holds {} tokens{}, another text or this one read with other options; it stays until this one is "
      "read",
      options.out, reader->contents().tokens.size(),
      before && !before->source.empty() ? " of " + OnOneLine(before->source) : "");
}

// What was begun with this text and these options goes on; anything else is left alone.
Result<std::unique_ptr<ContextIngest>> BeginOrResume(Engine& engine, const IngestOptions& options,
                                                     const ContextSetup& setup,
                                                     std::span<const TokenId> tokens) {
  const bool there_is_one = std::filesystem::exists(ContextWriter::PartialPath(options.out));
  Result<std::unique_ptr<ContextIngest>> begun =
      ContextIngest::Begin(engine, options.out, setup, options.restart, static_cast<int64_t>(tokens.size()));
  if (begun || !there_is_one || options.restart) return begun;
  const Error refused = begun.error();
  auto resumed = ContextIngest::Resume(engine, options.out);
  if (!resumed) {
    const std::string why = resumed.error().message;
    if (why == refused.message || !std::filesystem::exists(ContextWriter::PartialPath(options.out))) {
      return tl::unexpected<Error>(refused);
    }
    // What another moment may mend is not to be thrown away.
    if (resumed.error().kind != ErrorKind::kInvalidInput) return tl::unexpected<Error>(resumed.error());
    return InvalidInput(fmt::format("{}; --restart begins anew", why));
  }
  const std::vector<TokenId>& read = (*resumed)->session().tokens();
  if (!SameOptions(options, (*resumed)->setup(), setup) || read.size() > tokens.size() ||
      !std::equal(read.begin(), read.end(), tokens.begin())) {
    return InvalidInput(
        fmt::format("{} holds the beginning of another text, or of this one read with other options: give "
                    "those options, or begin anew with --restart",
                    ContextWriter::PartialPath(options.out)));
  }
  if (!options.quiet) Note("goes on behind token {} of {}\n", read.size(), tokens.size());
  return resumed;
}

// What was begun goes on with the types that "auto" stood for then: free memory, which decides, may be
// another now.
void TakeTypesOfWhatWasBegun(const IngestOptions& options, EngineOptions& load) {
  if (options.restart) return;
  const Result<ContextSetup> begun = ReadContextSetup(ContextWriter::PartialPath(options.out));
  if (!begun) return;
  if (load.compute == "auto") load.compute = begun->compute;
  if (load.kv_type == "auto") load.kv_type = begun->kv_type;
}

Result<int> Ingest(const IngestOptions& options) {
  if (options.out.empty()) return InvalidInput("where to? name the context file with -o FILE.lhctx");
  LH_TRY(CheckCanBeLookedUp(options.out));
  LH_ASSIGN(const std::string text, ReadText(options.input));
  std::string note;
  LH_TRY(CheckUtf8(text, options.replace_invalid, note));
  if (!note.empty() && !options.quiet) Note("{}\n", note);

  LH_ASSIGN(EngineOptions load, EngineOptionsOf(options.model));
  load.kv_may_leave = true;
  TakeTypesOfWhatWasBegun(options, load);
  const bool limited = load.kv_ram > 0;
  LH_TRY(SendPagesTo(options.out, options.model, load));
  LH_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Load(load));
  if (!limited) engine->FitBlocksTo({.ram = kBlockRam, .parts = load.block_parts});
  const bool chat = !options.no_chat && engine->chat_template() != nullptr;
  if (!chat && !options.no_chat && engine->file().Find("tokenizer.chat_template") != nullptr) {
    return Unsupported(engine->chat_template_error());
  }
  LH_ASSIGN(const std::vector<TokenId> tokens, Encode(*engine, text, chat));
  if (tokens.empty()) return InvalidInput("no byte of the text has a token in this vocabulary");
  LH_TRY(SayWhatIsLeftOut(*engine, text, options.quiet));
  const int64_t n = static_cast<int64_t>(tokens.size());
  const std::string source = options.input.file.empty() || options.input.file == "-"
                                 ? ""
                                 : std::filesystem::path(options.input.file).filename().string();
  LH_ASSIGN(ContextSetup setup, SetupOf(*engine, load, n + options.answer_room, chat, source));
  if (const auto there = ThereAlready(options, setup, tokens)) {
    const std::size_t more = *there - tokens.size();
    if (!options.quiet) {
      Note("{} holds this text already{}; --restart reads it anew\n", options.out,
           more == 0 ? "" : fmt::format(", and {} tokens that were appended", more));
    }
    return 0;
  }
  // Something of the text is there: it goes on in the blocks that it began with.
  const bool goes_on = !options.restart && ContextReader::Open(ContextWriter::PartialPath(options.out),
                                                               {.which = ContextReader::Which::kNewest});
  if (goes_on && options.model.kv_blocks != 0 && !options.quiet) {
    Note("note: {} goes on in the blocks that it began with\n", options.out);
  } else if (!goes_on) {
    LH_TRY(FitBlocks(*engine, options.model, n, options.quiet));
    setup.blocks = engine->block_fit();
  }
  LH_ASSIGN(const std::unique_ptr<ContextIngest> ingest, BeginOrResume(*engine, options, setup, tokens));
  if (const std::string replaced = WhatIsReplaced(options, setup, tokens);
      !replaced.empty() && !options.quiet)
    Note("note: {}\n", replaced);
  if (!options.quiet) AnnounceReading(*engine, n, load.kv_disk);
  const int64_t done = ingest->session().size();
  const auto start = std::chrono::steady_clock::now();
  LH_TRY(ReadInto(*ingest, std::span(tokens).subspan(static_cast<std::size_t>(done)), options.quiet));
  LH_TRY(ingest->Finish());
  if (!options.quiet) {
    Note("{}: {} tokens, {}. Ask it with: longheads ask {} -q \"...\"\n", options.out, n,
         FormatBytes(std::filesystem::file_size(options.out)), options.out);
    Note("{}\n", DescribeTraffic(*engine, SecondsSince(start)));
  }
  return 0;
}

}  // namespace

void AddIngestCommand(CLI::App& program, Command& command) {
  CLI::App* const app =
      program.add_subcommand("ingest", "Reads a text once, into a context file that 'ask' opens");
  const auto options = std::make_shared<IngestOptions>();
  AddTextInput(*app, options->input, "Text");
  app->add_option("-o,--out", options->out,
                  "the context file; until the text is read to its end, FILE.partial")
      ->type_name("FILE")
      ->group("Text");
  app->add_flag("--restart", options->restart,
                "begin anew where a reading was interrupted; without it the same command goes on")
      ->group("Text");
  app->add_option(
         "--answer-room", options->answer_room,
         "tokens of questions and answers to come, for methods that are fitted to the length of the text")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, kMostTokens))
      ->capture_default_str()
      ->group("Text");
  app->add_flag("--no-chat", options->no_chat,
                "the text stands alone, in no message of the model's chat template")
      ->group("Text");
  app->add_flag("--replace-invalid", options->replace_invalid, "read U+FFFD where the text is not UTF-8")
      ->group("Text");
  AddModelOptions(*app, options->model);
  HideFolderOptions(*app);
  app->add_flag("--quiet", options->quiet, "nothing on stderr but errors")->group("Output");
  app->footer(
      "White space at the end of the text is left out. After a kill or Ctrl-C the same command goes on "
      "behind the last\n"
      "whole block. Keys and values go to the file itself; without --kv-ram, half of the memory that is free "
      "may hold\n"
      "some of them at a time.\n\nExamples:\n"
      "  longheads ingest -f book.txt -o book.lhctx\n"
      "  longheads ingest -f logs.txt -o logs.lhctx --attn longheads,window=2048 --kv-type q8 --kv-ram 1g");
  app->callback([options, &command] { command = [options] { return Ingest(*options); }; });
}

}  // namespace longheads
