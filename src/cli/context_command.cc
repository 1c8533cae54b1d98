// longheads context: what is in a context file, whether it is whole, more text, and the text itself.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/cores.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/context_reading.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/out_file.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "engine/context.h"
#include "engine/model_fingerprint.h"
#include "formats/output_file.h"

namespace longheads {
namespace {

struct ContextOptions {
  std::string path;
  ModelOptions model;
  TextInput input;
  std::string join = "\n\n";
  std::string out;
  bool tokens = false;
  bool json = false;
  bool quiet = false;
  bool replace_invalid = false;
  bool restart = false;
  int64_t behind = -1;  // -1: whatever is there
};

Result<int> Info(const ContextOptions& options) {
  auto opened = ContextReader::Open(options.path, {.which = ContextReader::Which::kNewest});
  std::string damage;  // of what an interrupted writer left; `ask` does not see that
  if (!opened) {
    damage = opened.error().message;
    auto finished = ContextReader::Open(options.path, {});
    if (!finished || !finished->has_unfinished()) return tl::unexpected<Error>(opened.error());
    opened = std::move(finished);
  }
  const ContextReader& reader = *opened;
  LH_ASSIGN(const ContextSetup setup, ParseContextSetup(options.path, reader.header().metadata));
  const ContextContents& contents = reader.contents();
  const ContextGeometry& geometry = reader.header().geometry;
  LH_ASSIGN(const uint64_t n_tokens, reader.FinishedTokens());
  const uint64_t n_unfinished = contents.tokens.size() - std::min<uint64_t>(n_tokens, contents.tokens.size());
  uint64_t state_bytes = 0;
  for (const auto& parts : contents.states) {
    for (const ContextStatePart& part : parts) state_bytes += part.bytes;
  }
  const uint64_t page_bytes = contents.pages.size() * geometry.page_stride;
  LH_ASSIGN(const uint64_t file_bytes, reader.file().Size());
  if (options.json) {
    nlohmann::ordered_json json = ParseJson(reader.header().metadata);
    json["tokens"] = n_tokens;
    json["unfinished_tokens"] = n_unfinished;
    json["model_tokens"] = contents.model_tokens;
    json["checkpoints"] = reader.n_checkpoints();
    json["file_bytes"] = file_bytes;
    json["page_bytes"] = page_bytes;
    json["state_bytes"] = state_bytes;
    json["unfinished"] = reader.has_unfinished();
    if (!damage.empty()) json["unfinished_damage"] = damage;
    Print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  const auto line = [](std::string_view name, const std::string& value) {
    Print("{:<12} {}\n", name, OnOneLine(value));
  };
  line("text", fmt::format("{} tokens{}{}", n_tokens, setup.source.empty() ? "" : " of " + setup.source,
                           setup.chat ? ", in a user's message" : ""));
  line("model", fmt::format("{} (fingerprint {})", setup.model, FingerprintText(setup.model_fingerprint)));
  line("attention", setup.attention + (setup.rope.Text().empty() ? "" : "; " + setup.rope.Text()));
  line("types", fmt::format("compute {}, keys and values {}", setup.compute, setup.kv_type));
  line("shape", fmt::format("{} layers, {} key/value heads of {}", geometry.n_layers, geometry.n_kv_heads,
                            geometry.head_dim));
  line("size", fmt::format("{}: pages {}, method's state {}, in {} checkpoints", FormatBytes(file_bytes),
                           FormatBytes(page_bytes), FormatBytes(state_bytes), reader.n_checkpoints()));
  line("written by", setup.program);
  if (!damage.empty()) {
    line("unfinished", fmt::format("more, of an interrupted append, that cannot be read: {}; context append "
                                   "--restart drops it",
                                   damage));
  } else if (reader.has_unfinished()) {
    line("unfinished",
         fmt::format("{} tokens more: their writer was interrupted; the same command goes on", n_unfinished));
  }
  return 0;
}

Result<int> Verify(const ContextOptions& options) {
  LH_ASSIGN(const ContextReader reader, ContextReader::Open(options.path, {.direct = true}));
  LH_TRY(ParseContextSetup(options.path, reader.header().metadata));
  ThreadPool pool(PhysicalCores());
  LH_ASSIGN(const std::vector<std::string> damage,
            reader.Verify(pool, [](uint64_t, uint64_t) { return !InterruptToken().cancelled(); }));
  for (const std::string& one : damage) Print("{}\n", one);
  if (!damage.empty()) {
    return InvalidInput(fmt::format("{} is damaged in {} place{}", options.path, damage.size(),
                                    damage.size() == 1 ? "" : "s"));
  }
  Print("{} is whole: {} tokens, {} pages\n", options.path, reader.contents().tokens.size(),
        reader.contents().pages.size());
  return 0;
}

// Whether `tokens` stand behind so many in the file, which may be finished there or not; an error where
// something else does.
Result<bool> StandsBehind(const ContextOptions& options, const std::vector<int32_t>& there,
                          std::span<const TokenId> tokens) {
  const auto n = static_cast<int64_t>(there.size());
  if (n == options.behind) return false;
  if (n == options.behind + static_cast<int64_t>(tokens.size()) &&
      std::equal(tokens.begin(), tokens.end(), there.begin() + options.behind)) {
    return true;
  }
  return InvalidInput(fmt::format("{} holds {} tokens, and not the {} of --behind, nor this text behind them",
                                  options.path, n, options.behind));
}

// The same where another addition was begun behind the text: then the file is left as it is, that addition
// too. What is refused is refused before the file is opened for writing, which drops under --restart what was
// begun.
Result<bool> IsDoneBefore(Engine& engine, const ContextOptions& options, std::span<const TokenId> tokens) {
  if (options.behind < 0) return false;
  LH_ASSIGN(const ContextReader finished, ContextReader::Open(options.path, {}));
  LH_ASSIGN(const ContextSetup setup, ParseContextSetup(options.path, finished.header().metadata));
  LH_TRY(CheckMadeWith(engine, options.path, finished.header(), setup));
  LH_ASSIGN(const bool done, StandsBehind(options, finished.contents().tokens, tokens));
  if (!done) return false;
  const Result<ContextReader> newest =
      ContextReader::Open(options.path, {.which = ContextReader::Which::kNewest});
  return !newest || newest->contents().tokens.size() > finished.contents().tokens.size();
}

Result<int> Append(const ContextOptions& options) {
  LH_ASSIGN(const ContextSetup setup, ReadContextSetup(options.path));
  LH_ASSIGN(std::string text, ReadText(options.input));
  std::string note;
  LH_TRY(CheckUtf8(text, options.replace_invalid, note));
  if (!note.empty() && !options.quiet) Note("{}\n", note);
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return InvalidInput("the text is empty: there is nothing to add");
  text = options.join + text.substr(0, end + 1);

  LH_ASSIGN(const EngineOptions given, EngineOptionsOf(options.model));
  LH_ASSIGN(EngineOptions load, OptionsFor(setup, given));
  const bool limited = load.kv_ram > 0;
  LH_TRY(SendPagesTo(options.path, options.model, load));
  LH_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Load(load));
  // Not to the memory that happens to be free: the same texts always give the same file.
  BlockFit blocks = setup.blocks;
  if (limited) blocks.ram = engine->block_fit().ram;
  if (options.model.kv_blocks != 0) blocks.parts = options.model.kv_blocks;
  engine->FitBlocksTo(blocks);
  LH_ASSIGN(const std::vector<TokenId> tokens,
            engine->tokenizer().Encode(text, {.goes_on = true, .cancel = &InterruptToken()}));
  LH_TRY(SayWhatIsLeftOut(*engine, text, options.quiet));
  LH_ASSIGN(const bool is_done, IsDoneBefore(*engine, options, tokens));
  if (is_done) {
    if (!options.quiet) {
      Note(
          "{} has this text already, behind {} tokens; what another append had added behind it stays "
          "unfinished\n",
          options.path, options.behind);
    }
    return 0;
  }
  LH_ASSIGN(
      const std::unique_ptr<ContextIngest> ingest,
      ContextIngest::Append(*engine, options.path, options.restart, static_cast<int64_t>(tokens.size())));
  // Nobody else finishes anything now.
  LH_ASSIGN(const ContextReader before, ContextReader::Open(options.path, {}));
  const auto n_before = static_cast<int64_t>(before.contents().tokens.size());
  // What an interrupted command added is there already.
  const std::span<const TokenId> added =
      std::span(ingest->session().tokens()).subspan(static_cast<std::size_t>(n_before));
  if (added.size() > tokens.size() || !std::equal(added.begin(), added.end(), tokens.begin())) {
    return InvalidInput(fmt::format(
        "another text was being added to {} when its writer was interrupted: add that one first, or "
        "drop it with --restart",
        options.path));
  }
  if (const auto& interrupted = ingest->tokens_before_interrupted_finish();
      interrupted && *interrupted <= ingest->session().tokens().size() &&
      std::ranges::equal(std::span(ingest->session().tokens()).subspan(*interrupted), tokens)) {
    LH_TRY(ingest->Finish());
    if (!options.quiet) {
      Note("{} has this text already: its writer was interrupted at the very end\n", options.path);
    }
    return 0;
  }
  if (options.behind >= 0) {
    LH_ASSIGN(const bool done, StandsBehind(options, before.contents().tokens, tokens));
    if (done) {
      // Its writer may have been interrupted at the very end; or a later one is, whose text is not this
      // command's.
      if (added.empty()) LH_TRY(ingest->Finish());
      if (!options.quiet) Note("{} has this text already, behind {} tokens\n", options.path, options.behind);
      return 0;
    }
  }
  if (!options.quiet) AnnounceReading(*engine, n_before + static_cast<int64_t>(tokens.size()), load.kv_disk);
  LH_TRY(ReadInto(*ingest, std::span(tokens).subspan(added.size()), options.quiet));
  LH_TRY(ingest->Finish());
  if (!options.quiet) Note("{}: {} tokens\n", options.path, ingest->session().size());
  return 0;
}

Result<int> Export(const ContextOptions& options) {
  LH_TRY(CheckNotInput("--out", options.out, options.path, "the context file"));
  LH_ASSIGN(const ContextReader reader, ContextReader::Open(options.path, {}));
  LH_ASSIGN(const ContextSetup setup, ParseContextSetup(options.path, reader.header().metadata));
  const std::vector<int32_t>& tokens = reader.contents().tokens;
  std::string text;
  if (options.tokens) {
    for (const int32_t token : tokens) text += fmt::format("{}\n", token);
  } else {
    LH_ASSIGN(const EngineOptions given, EngineOptionsOf(options.model));
    LH_ASSIGN(EngineOptions load, OptionsFor(setup, given));
    LH_TRY(CheckNotInput("--out", options.out, load.model_path, "the model file"));
    load.kv_may_leave = false;  // no page is asked for
    LH_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Load(load));
    LH_TRY(CheckMadeWith(*engine, options.path, reader.header(), setup));
    text = engine->tokenizer().Decode(tokens, /*special=*/true) + "\n";
  }
  if (options.out.empty()) {
    WriteOutput(text);
    return 0;
  }
  LH_TRY(WriteFile(options.out, text));
  return 0;
}

}  // namespace

void AddContextCommand(CLI::App& program, Command& command) {
  CLI::App* const app =
      program.add_subcommand("context", "Looks into context files, checks, extends and exports them");
  app->require_subcommand(1);
  app->footer(
      "docs/context-file.md has the format; tools/context/verify.py checks a file without this program.\n\n"
      "Examples:\n  longheads context info book.lhctx\n  longheads context verify book.lhctx\n"
      "  longheads context export book.lhctx -o book.txt");
  const auto options = std::make_shared<ContextOptions>();
  const auto add = [&](const char* name, const char* what, Result<int> (*run)(const ContextOptions&)) {
    CLI::App* const one = app->add_subcommand(name, what);
    one->add_option("FILE", options->path, "the context file")->type_name("FILE")->required();
    one->callback([options, run, &command] { command = [options, run] { return run(*options); }; });
    return one;
  };
  CLI::App* const info = add("info", "Says what a file holds, and with what it was read", Info);
  info->add_flag("--json", options->json, "as one JSON object");
  add("verify", "Reads every byte that counts and holds it against its checksum", Verify);
  CLI::App* const append =
      add("append", "Reads more text behind the text; until it is done, the old text stands", Append);
  AddTextInput(*append, options->input, "Text");
  append->add_option("--join", options->join, "what stands between the old text and the new one")
      ->type_name("TEXT")
      ->group("Text");
  append->add_flag("--replace-invalid", options->replace_invalid, "read U+FFFD where the text is not UTF-8")
      ->group("Text");
  append->add_flag("--restart", options->restart, "without what an interrupted append had added")
      ->group("Text");
  append
      ->add_option(
          "--behind", options->behind,
          "only behind so many tokens, as 'longheads context info FILE' tells them: where the text stands "
          "behind them already, nothing is done, and a file with others is refused")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, kMostTokens))
      ->group("Text");
  AddModelOptions(*append, options->model, /*with_attention=*/false);
  HideFolderOptions(*append);
  append->add_flag("--quiet", options->quiet, "nothing on stderr but errors")->group("Output");
  append->footer(
      "After a kill or Ctrl-C the same command goes on. One that was killed behind its last write cannot be "
      "told "
      "from one\nthat ended: the same command would add the text once more. With --behind N it never does, "
      "however often it is\nrepeated.\n\nExample:\n  longheads context append book.lhctx -f part2.txt "
      "--behind 81920");
  CLI::App* const text =
      add("export", "Writes the text as the model read it, control tokens and all", Export);
  text->add_option("-o,--out", options->out, "to a file instead of standard output")->type_name("FILE");
  CLI::Option* const tokens =
      text->add_flag("--tokens", options->tokens, "token ids, one a line; needs no model");
  AddModelFileOption(*text, options->model);
  AddComputeOptions(*text, options->model);
  for (const char* name : {"--model", "--compute", "--kv-type", "--backend", "--threads"})
    text->get_option(name)->excludes(tokens);
}

}  // namespace longheads
