#include "engine/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <new>
#include <numeric>

#include "attention/registry.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "engine/model_fingerprint.h"
#include "engine/session_archive.h"

namespace longheads {

// A context file that is being written, as the store sees it.
class ContextPages final : public PageFile {
 public:
  explicit ContextPages(std::shared_ptr<ContextWriter> writer) : writer_(std::move(writer)) { Committed(); }

  const RawFile& file() const override { return writer_->file(); }
  Result<uint64_t> Allot() override { return writer_->AllotPages(1); }
  void Free(uint64_t) override {}  // files only grow
  bool MayOverwrite(uint64_t offset) const override { return offset >= committed_; }
  bool InOrderOfText() const override { return true; }

  void Committed() { committed_ = writer_->AllotPages(0); }

 private:
  std::shared_ptr<ContextWriter> writer_;
  std::atomic<uint64_t> committed_;  // pages before belong to a text that is whole
};

namespace {

// A finished file, as the store sees it: nothing is written there.
class FinishedPages final : public PageFile {
 public:
  explicit FinishedPages(ContextReader reader) : reader_(std::move(reader)) {}

  const RawFile& file() const override { return reader_.file(); }
  Result<uint64_t> Allot() override {
    return MakeError(ErrorKind::kIo, "a finished context file takes no pages");
  }
  void Free(uint64_t) override {}
  bool MayOverwrite(uint64_t) const override { return false; }

 private:
  ContextReader reader_;
};

uint64_t FingerprintTokenizer(const Vocabulary& vocabulary) {
  std::string all = fmt::format("{} {} {} {}\n", static_cast<int>(vocabulary.model), vocabulary.pre_tokenizer,
                                vocabulary.bos, vocabulary.eos);
  for (const std::string& token : vocabulary.tokens) {
    all += token;
    all += '\0';
  }
  return Checksum(std::as_bytes(std::span(all)));
}

ContextGeometry GeometryOf(const KvGeometry& kv) {
  return {.n_layers = static_cast<uint32_t>(kv.n_layers),
          .n_kv_heads = static_cast<uint32_t>(kv.n_kv_heads),
          .head_dim = static_cast<uint32_t>(kv.head_dim),
          .kv_type = static_cast<uint32_t>(kv.type),
          .page_tokens = static_cast<uint32_t>(kPageTokens),
          .page_bytes = static_cast<uint64_t>(kv.PageBytes()),
          .page_stride = static_cast<uint64_t>(kv.PageStride())};
}

// Whether the disk of `path`, which exists, has room for n_new tokens behind `before` others, in the engine's
// blocks. `replaced`: bytes of the method's state that every commit writes anew; `freed`: what lies at `path`
// and is thrown away first.
Status CheckDisk(const Engine& engine, const std::string& path, int64_t before, int64_t n_new,
                 uint64_t replaced, uint64_t freed) {
  const ContextGeometry geometry = GeometryOf(engine.kv_geometry());
  const int64_t after = before + n_new;
  const uint64_t full_before =
      static_cast<uint64_t>(engine.ModelSize(before)) / geometry.page_tokens;  // stay where they are
  const uint64_t pages = geometry.PagesFor(static_cast<uint64_t>(engine.ModelSize(after))) - full_before;
  // What every commit writes anew stays in the file: some of the method's state, and pages that are not full.
  uint64_t n_commits = 0, n_open = 0;
  for (int64_t n = before; n < after; ++n_commits) {
    n += std::min(after - n, engine.BlockBehind(n));
    if (n < after && engine.ModelSize(n) % static_cast<int64_t>(geometry.page_tokens) != 0) ++n_open;
  }
  const uint64_t more = (pages + n_open) * geometry.heads() * geometry.page_stride +
                        engine.PlanMemory(after).state - engine.PlanMemory(before).state +
                        n_commits * replaced;
  LH_ASSIGN(const uint64_t free, FreeSpace(path));
  if (more <= free || more - free <= freed) return {};
  return MakeError(
      ErrorKind::kIo,
      fmt::format("{}: {} more tokens take {} of disk, but {} are free there: make room, or name another "
                  "disk",
                  path, n_new, FormatBytes(more), FormatBytes(free + freed)));
}

// Whether memory and disk have room for a text of n tokens in the place of the partial, where there is one.
Status CheckRoomInsteadOf(const std::string& partial, const Engine& engine, int64_t n_tokens) {
  const Result<RawFile> old = RawFile::Open(partial, {});
  if (!old) return {};
  LH_ASSIGN(const uint64_t freed, old->Allocated());
  LH_TRY(engine.CheckOpening(n_tokens));
  return CheckDisk(engine, partial, /*before=*/0, n_tokens, /*replaced=*/0, freed);
}

}  // namespace

Status CheckMadeWith(Engine& engine, const std::string& path, const ContextHeader& header,
                     const ContextSetup& setup) {
  if (FingerprintModel(engine.file()) != setup.model_fingerprint) {
    return InvalidInput(
        fmt::format("{} was made with another model, {}: name that one with -m", path, setup.model));
  }
  if (FingerprintTokenizer(engine.tokenizer().vocabulary()) != setup.tokenizer_fingerprint) {
    return InvalidInput(
        fmt::format("{} was made with another vocabulary than {} has", path, engine.file().name()));
  }
  if (header.geometry != GeometryOf(engine.kv_geometry())) {
    return InvalidInput(
        fmt::format("{}: its keys and values have another shape or type than the model's", path));
  }
  // Also where the file became another one since the engine was loaded for it.
  if (NameOf(engine.compute()) != setup.compute) {
    return InvalidInput(fmt::format("{} was read with --compute {}, but the model was loaded with {}", path,
                                    setup.compute, NameOf(engine.compute())));
  }
  LH_ASSIGN(const std::string attention, FullSpec(engine.attention_spec()));
  if (attention != setup.attention_in_full) {
    return InvalidInput(fmt::format("{} was read with {}, which is not what {} means in this program: {}",
                                    path, setup.attention_in_full, engine.attention_spec(), attention));
  }
  if (engine.rope().Text() != setup.rope.Text()) {
    return InvalidInput(
        fmt::format("{} was read with other options of RoPE than the model was loaded with", path));
  }
  if (setup.expected_tokens > 0) LH_TRY(engine.ExpectText(setup.expected_tokens));
  return {};
}

Result<ContextSetup> ReadContextSetup(const std::string& path) try {
  LH_ASSIGN(const RawFile file, ContextReader::OpenFile(path, /*direct=*/false));
  LH_ASSIGN(const ContextFrame frame, ReadContextFrame(file));
  return ParseContextSetup(path, frame.header.metadata);
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

Result<EngineOptions> OptionsFor(const ContextSetup& setup, EngineOptions options) {
  const auto take = [](const char* flag, const std::string& read_with, std::string& asked) -> Status {
    if (asked != "auto" && asked != read_with) {
      return InvalidInput(
          fmt::format("the text was read with {} {}, not {}: leave {} out, or ingest the text anew", flag,
                      read_with, asked, flag));
    }
    asked = read_with;
    return {};
  };
  LH_TRY(take("--attn", setup.attention, options.attention));
  LH_TRY(take("--compute", setup.compute, options.compute));
  LH_TRY(take("--kv-type", setup.kv_type, options.kv_type));
  const std::string rope = options.rope.Text();
  if (!rope.empty() && rope != setup.rope.Text()) {
    return InvalidInput(
        fmt::format("the text was read with {}, not with {}: leave that out, or ingest the text anew",
                    setup.rope.Text().empty() ? "the model's own RoPE" : setup.rope.Text(), rope));
  }
  options.rope = setup.rope;
  options.kv_may_leave = true;
  return options;
}

Result<ContextSetup> SetupOf(const Engine& engine, const EngineOptions& options, int64_t expected_tokens,
                             bool chat, const std::string& source) try {
  const Result<std::string> full = FullSpec(options.attention);
  LH_CHECK(full.has_value());  // the engine was loaded with it
  return ContextSetup{.program = "longheads " LONGHEADS_VERSION,
                      .model = std::filesystem::path(engine.file().name()).filename().string(),
                      .model_fingerprint = FingerprintModel(engine.file()),
                      .tokenizer_fingerprint = FingerprintTokenizer(engine.tokenizer().vocabulary()),
                      .attention = options.attention,
                      .attention_in_full = *full,
                      .rope = options.rope,
                      .compute = std::string(NameOf(engine.compute())),
                      .kv_type = NameOf(engine.kv_type()),
                      .expected_tokens = engine.FollowsTextLength() ? expected_tokens : 0,
                      .blocks = engine.block_fit(),
                      .chat = chat,
                      .source = source};
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

// ---- Reading into a file

ContextIngest::ContextIngest(Engine& engine, ContextSetup setup, std::shared_ptr<ContextWriter> writer)
    : engine_(engine),
      setup_(std::move(setup)),
      writer_(std::move(writer)),
      pages_(std::make_shared<ContextPages>(writer_)),
      session_(engine.NewSession()),
      blocks_before_(engine.block_fit()) {
  pages_before_ = SessionArchive::WriteTo(engine_, pages_);
}

bool ContextIngest::was_cut() const { return writer_->was_cut(); }

// What the engine reads next does not belong to the file.
ContextIngest::~ContextIngest() {
  SessionArchive::WriteTo(engine_, std::move(pages_before_));
  engine_.FitBlocksTo(blocks_before_);
}

Result<std::unique_ptr<ContextIngest>> ContextIngest::Begin(Engine& engine, const std::string& path,
                                                            const ContextSetup& setup, bool restart,
                                                            int64_t n_tokens) try {
  using Unfinished = ContextWriter::CreateOptions::Unfinished;
  if (setup.expected_tokens > 0) LH_TRY(engine.ExpectText(setup.expected_tokens));
  if (restart) LH_TRY(CheckRoomInsteadOf(ContextWriter::PartialPath(path), engine, n_tokens));
  const ContextHeader header{.geometry = GeometryOf(engine.kv_geometry()),
                             .metadata = WriteContextSetup(setup)};
  LH_ASSIGN(std::unique_ptr<ContextWriter> writer,
            ContextWriter::Create(
                path, header,
                {.direct = true, .unfinished = restart ? Unfinished::kDiscard : Unfinished::kRefuse}));
  return std::unique_ptr<ContextIngest>(new ContextIngest(engine, setup, std::move(writer)));
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

Result<std::unique_ptr<ContextIngest>> ContextIngest::Resume(Engine& engine, const std::string& path) try {
  LH_ASSIGN(ContextWriter::Resumed resumed, ContextWriter::Resume(path, /*direct=*/true));
  // To the same bytes as one that was not interrupted.
  return GoOn(engine, std::move(resumed), ContextWriter::PartialPath(path), std::nullopt);
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

Result<std::unique_ptr<ContextIngest>> ContextIngest::Append(Engine& engine, const std::string& path,
                                                             bool restart, int64_t n_new) try {
  using From = ContextWriter::From;
  const auto check = [&](const ContextWriter::Found& found) -> Status {
    LH_ASSIGN(const ContextSetup setup, ParseContextSetup(path, found.header.metadata));
    LH_TRY(CheckMadeWith(engine, path, found.header, setup));
    if (!restart || !found.drops) return {};
    const auto before = static_cast<int64_t>(found.n_tokens);
    LH_TRY(engine.CheckOpening(before + n_new));
    return CheckDisk(engine, path, before, n_new, /*replaced=*/0, found.dropped_bytes);
  };
  LH_ASSIGN(ContextWriter::Resumed resumed,
            ContextWriter::Append(path, restart ? From::kFinished : From::kNewest, /*direct=*/true, check));
  return GoOn(engine, std::move(resumed), path, engine.block_fit());
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

Result<std::unique_ptr<ContextIngest>> ContextIngest::GoOn(Engine& engine, ContextWriter::Resumed resumed,
                                                           const std::string& path,
                                                           const std::optional<BlockFit>& own) {
  const ContextHeader& header = resumed.writer->header();
  LH_ASSIGN(ContextSetup setup, ParseContextSetup(path, header.metadata));
  LH_TRY(CheckMadeWith(engine, path, header, setup));
  BlockFit blocks = setup.blocks;
  if (own) blocks = {.ram = std::min(blocks.ram, own->ram), .parts = own->parts};
  std::unique_ptr<ContextIngest> ingest(
      new ContextIngest(engine, std::move(setup), std::move(resumed.writer)));
  // In the engine's own blocks, which Read falls back to.
  LH_TRY(engine.CheckOpening(static_cast<int64_t>(resumed.contents.tokens.size())));
  engine.FitBlocksTo(blocks);
  LH_TRY(SessionArchive::Restore(engine, resumed.contents, ingest->pages_, path, ingest->session_));
  ingest->committed_ = ingest->session_.size();
  ingest->tokens_before_interrupted_finish_ = resumed.tokens_before_interrupted_finish;
  return ingest;
}

Status ContextIngest::Read(std::span<const TokenId> tokens, const ForwardControl& control) try {
  LH_TRY(Commit());
  if (tokens.empty()) return {};
  const int64_t total = static_cast<int64_t>(tokens.size());
  // Not in the middle of hours of work. Blocks as large as before are for the same bytes; smaller ones make
  // the same text.
  if (!engine_.KeepsToRam(session_.size() + total) || !engine_.CheckMemory(session_, total)) {
    engine_.FitBlocksTo({.ram = std::min(engine_.block_fit().ram, blocks_before_.ram)});
  }
  LH_TRY(engine_.CheckMemory(session_, total));
  for (int64_t begin = 0, end = 0; begin < total; begin = end) {
    // Again: others write there too, and now it is known what a commit takes.
    LH_TRY(CheckDisk(engine_, writer_->file().path(), committed_, total - begin, replaced_bytes_,
                     /*freed=*/0));
    end = std::min(total, begin + engine_.BlockBehind(session_.size()));
    ForwardControl of_block = control;
    if (control.progress) {
      of_block.progress = [&](double share) {
        const double done = static_cast<double>(begin) + share * static_cast<double>(end - begin);
        control.progress(done / static_cast<double>(total));
      };
    }
    LH_TRY(engine_.Prefill(
        session_, tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
        Outputs::kNone, of_block));
    LH_TRY(Commit());
  }
  return {};
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

Status ContextIngest::Commit() {
  if (session_.size() == committed_) return {};
  LH_ASSIGN(const SessionArchive::Delta delta, SessionArchive::Save(engine_, session_, committed_));
  uint64_t replaced_bytes = 0;
  const auto states = [&](const ContextStateSink& take) {
    replaced_bytes = 0;
    return SessionArchive::SaveStates(session_, [&](const ContextStateUpdate& state) {
      if (state.replaces_earlier) replaced_bytes += state.bytes.size();
      return take(state);
    });
  };
  LH_TRY(writer_->Commit({.tokens = delta.tokens,
                          .phases = delta.phases,
                          .model_tokens = delta.model_tokens,
                          .pages = delta.pages,
                          .states = states}));
  replaced_bytes_ = replaced_bytes;
  pages_->Committed();
  SessionArchive::Saved(session_);
  committed_ = session_.size();
  return {};
}

Status ContextIngest::Finish() try {
  LH_TRY(Commit());
  return writer_->Finish();
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

// ---- Opening

Result<Session> OpenContext(Engine& engine, const std::string& path, ContextSetup* setup) try {
  LH_ASSIGN(ContextReader reader, ContextReader::Open(path, {.direct = true}));
  LH_ASSIGN(ContextSetup found, ParseContextSetup(path, reader.header().metadata));
  LH_TRY(CheckMadeWith(engine, path, reader.header(), found));
  if (setup != nullptr) *setup = std::move(found);
  const ContextContents contents = reader.TakeContents();
  LH_TRY(engine.CheckOpening(static_cast<int64_t>(contents.tokens.size())));
  Session session = engine.NewSession();
  LH_TRY(SessionArchive::Restore(engine, contents, std::make_shared<FinishedPages>(std::move(reader)), path,
                                 session));
  return session;
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
}

}  // namespace longheads
