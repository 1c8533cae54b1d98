// A text that was read into a file and opened again goes on bit for bit as one that never left.
#include "engine/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "attention/registry.h"
#include "base/memory.h"
#include "engine/esa_for_test.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_transformer.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

const TinyLlamaOptions kTiny = {.vocab_size = 273,
                                .n_layers = 3,
                                .embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .ffn = 48,
                                .context_length = 8192,
                                .control_token = "<landmark>"};
constexpr int64_t kText = 2603;
constexpr int64_t kAnswer = 12;

struct Case {
  const char* attention;
  const char* kv_type;
};

class ContextTest : public testing::TestWithParam<Case> {
 protected:
  ContextTest()
      : model_(TinyLlama(kTiny)),
        esa_compression_(SaveRandomEsaCompression(model_.path(), kTiny)),
        folder_(testing::TempDir() + "/context_test_" + Name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ContextTest() override { std::filesystem::remove_all(folder_); }

  static std::string Name() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '_');
    return name;
  }

  EngineOptions Options(uint64_t kv_ram = 0) const {
    return {.model_path = model_.path(),
            .attention = GetParam().attention,
            .compute = "f32",
            .kv_type = GetParam().kv_type,
            .kv_ram = kv_ram,
            .kv_disk = testing::TempDir(),
            .kv_may_leave = true,
            .threads = 2};
  }
  std::unique_ptr<Engine> Load(uint64_t kv_ram = 0) const {
    auto engine = Engine::Load(Options(kv_ram));
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  std::string Path(const char* name) const { return folder_ + "/" + name; }
  static std::span<const TokenId> Part(int64_t begin, int64_t end) {
    static const std::vector<TokenId> tokens = TinyTokens(kText + 1000, 256, 1);
    return std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  // A prompt and some tokens behind the text.
  static std::vector<float> Ask(Engine& engine, const Session& text) {
    Session session = engine.Fork(text);
    const auto prompt = engine.Prefill(session, Part(kText, kText + 30), Outputs::kAll, {});
    EXPECT_TRUE(prompt) << prompt.error().message;
    if (!prompt) return {};
    std::vector<float> all = *prompt;
    for (const TokenId& token : Part(kText + 30, kText + 30 + kAnswer)) {
      Session* const self = &session;
      const auto hidden = engine.Decode(std::span(&self, 1), std::span(&token, 1));
      EXPECT_TRUE(hidden) << hidden.error().message;
      if (hidden) all.insert(all.end(), hidden->begin(), hidden->end());
    }
    return all;
  }
  // The same of a text that was read in memory.
  std::vector<float> Expected(int64_t n = kText) const {
    EngineOptions options = Options();
    options.kv_may_leave = false;
    const auto engine = *Engine::Load(options);
    Session session = engine->NewSession();
    EXPECT_TRUE(engine->Prefill(session, Part(0, n), Outputs::kNone, {}));
    return Ask(*engine, session);
  }
  static bool Same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && !a.empty() &&
           std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0;
  }

  std::unique_ptr<ContextIngest> Begin(Engine& engine, const std::string& path) const {
    const ContextSetup setup = *SetupOf(engine, Options(), kText, /*chat=*/false, "a test");
    auto ingest = ContextIngest::Begin(engine, path, setup, /*restart=*/false);
    EXPECT_TRUE(ingest) << ingest.error().message;
    return ingest ? std::move(*ingest) : nullptr;
  }
  void Write(const std::string& path, int64_t n = kText, uint64_t kv_ram = 0) const {
    const auto engine = Load(kv_ram);
    const auto ingest = Begin(*engine, path);
    const Status read = ingest->Read(Part(0, n), {});
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_TRUE(ingest->Finish());
  }
  void ExpectAnswers(const std::string& path, const std::vector<float>& expected, uint64_t kv_ram = 0) const {
    const auto engine = Load(kv_ram);
    const auto session = OpenContext(*engine, path);
    ASSERT_TRUE(session) << session.error().message;
    for (int times = 0; times < 2; ++times) EXPECT_TRUE(Same(Ask(*engine, *session), expected)) << times;
  }
  uint64_t LeastRam() const {
    return static_cast<uint64_t>(KvPool::kLeastPages * Load()->kv_geometry().PageStride());
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  ModelFile model_;
  std::unique_ptr<CacheFolder> esa_compression_;
  std::string folder_;
};

TEST_P(ContextTest, AnOpenedTextGoesOnAsOneThatNeverLeft) {
  const std::vector<float> expected = Expected();
  Write(Path("all"));
  ExpectAnswers(Path("all"), expected);
  ExpectAnswers(Path("all"), expected, LeastRam());
  Write(Path("little"), kText, LeastRam());
  ExpectAnswers(Path("little"), expected);
  ThreadPool pool(2);
  const auto damage = ContextReader::Open(Path("little"), {})->Verify(pool, {});
  ASSERT_TRUE(damage) << damage.error().message;
  EXPECT_TRUE(damage->empty()) << damage->front();
}

TEST_P(ContextTest, AReadingThatWasCutGoesOnToTheSameFile) {
  Write(Path("whole"));
  {
    const auto engine = Load();
    const auto ingest = Begin(*engine, Path("cut"));
    // The second block is begun and stopped.
    CancelToken cancel;
    int calls = 0;
    const Status read = ingest->Read(Part(0, kText), {.cancel = &cancel, .progress = [&](double share) {
                                                        if (share > 0.9 && ++calls == 1) cancel.Cancel();
                                                      }});
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind, ErrorKind::kCancelled);
  }
  EXPECT_FALSE(std::filesystem::exists(Path("cut")));
  const auto engine = Load();
  const auto ingest = ContextIngest::Resume(*engine, Path("cut"));
  if (!ingest) {  // the method's calls are not to be cut: there was one block
    EXPECT_EQ(engine->CallUnit(), 0);
    return;
  }
  const int64_t done = (*ingest)->session().size();
  EXPECT_GT(done, 0);
  EXPECT_LT(done, kText);
  ASSERT_TRUE((*ingest)->Read(Part(done, kText), {}));
  ASSERT_TRUE((*ingest)->Finish());
  EXPECT_EQ(Bytes(Path("cut")), Bytes(Path("whole")));
}

TEST_P(ContextTest, TextIsAddedBehindWhatIsThere) {
  const auto probe = Load();
  const int64_t unit = probe->CallUnit();
  if (unit == 0) return;  // a text in two calls is another one
  const int64_t first = 2100 / unit * unit;
  Write(Path("file"), first);
  const std::string before = Bytes(Path("file"));
  {
    const auto engine = Load();
    const auto ingest = ContextIngest::Append(*engine, Path("file"));
    ASSERT_TRUE(ingest) << ingest.error().message;
    ASSERT_TRUE((*ingest)->Read(Part(first, kText), {}));
    // Until it is finished the old text is what is opened.
    const auto reader = Load();
    const auto old = OpenContext(*reader, Path("file"));
    ASSERT_TRUE(old) << old.error().message;
    EXPECT_EQ(old->size(), first);
    ASSERT_TRUE((*ingest)->Finish());
  }
  ExpectAnswers(Path("file"), Expected());
}

// Behind a text that was added in the middle of a block or step of the method.
TEST_P(ContextTest, GoesBackIntoAddedTextAsATextInMemoryDoes) {
  if (Load()->CallUnit() == 0) return;           // a text in two calls is another one
  constexpr int64_t kFirst = 111, kBack = 2400;  // what is added takes two calls
  Write(Path("file"), kFirst);
  {
    const auto engine = Load();
    const auto ingest = ContextIngest::Append(*engine, Path("file"));
    ASSERT_TRUE(ingest) << ingest.error().message;
    ASSERT_TRUE((*ingest)->Read(Part(kFirst, kText), {}));
    ASSERT_TRUE((*ingest)->Finish());
  }
  const auto reader = Load();
  auto opened = OpenContext(*reader, Path("file"));
  ASSERT_TRUE(opened) << opened.error().message;
  EngineOptions options = Options();
  options.kv_may_leave = false;
  const auto engine = *Engine::Load(options);
  Session read = engine->NewSession();
  ASSERT_TRUE(engine->Prefill(read, Part(0, kFirst), Outputs::kNone, {}));
  ASSERT_TRUE(engine->Prefill(read, Part(kFirst, kText), Outputs::kNone, {}));
  ASSERT_TRUE(reader->Truncate(*opened, kBack));
  ASSERT_TRUE(engine->Truncate(read, kBack));
  EXPECT_EQ(Ask(*reader, *opened), Ask(*engine, read));
}

TEST_P(ContextTest, ADamagedPageEndsTheRequestThatChoosesIt) {
  Write(Path("file"));
  const auto reader = *ContextReader::Open(Path("file"), {});
  {
    std::fstream file(Path("file"), std::ios::in | std::ios::out | std::ios::binary);
    for (const ContextPage& page : reader.contents().pages) {
      file.seekp(static_cast<std::streamoff>(page.offset + 7));
      file.put('\x55');
    }
  }
  const auto engine = Load();
  const auto session = OpenContext(*engine, Path("file"));
  ASSERT_TRUE(session) << session.error().message;
  Session fork = engine->Fork(*session);
  const auto hidden = engine->Prefill(fork, Part(kText, kText + 30), Outputs::kLast, {});
  ASSERT_FALSE(hidden);
  EXPECT_EQ(hidden.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(hidden.error().message.find("damaged"), std::string::npos) << hidden.error().message;
  EXPECT_EQ(fork.size(), kText);
}

std::vector<Case> Cases() {
  if (kSanitized) {
    return {Case{"longheads,chunk=64,window=512,begin=640", "bf16"},
            Case{"dynamic-ntk:mode=exact+full", "bf16"},
            Case{"infllm,n_init=16,n_local=256,block=64,top_k=4,representatives=2,exec_block=128", "bf16"},
            Case{kCompressedEsa, "q8"}, Case{"moba,chunk=128,top_k=3", "q8"}};
  }
  return {Case{"full", "f32"},
          Case{"longheads,chunk=64,window=512,begin=640", "bf16"},
          Case{"longheads,chunk=48,window=480,begin=480,reps=kv,select=kv", "q8"},
          Case{"dynamic-ntk:mode=exact+full", "bf16"},
          Case{"self-extend,group=4,window=256", "q8"},
          Case{"rerope,window=256", "bf16"},
          Case{"leaky-rerope,window=256", "f32"},
          Case{"streaming-llm,start=4,recent=500", "bf16"},
          Case{"lm-infinite,global=4,local=500,top_k=5,top_k_from=1", "bf16"},
          Case{"landmark,block=62,top_k=4,train_context=512", "q8"},
          Case{"infllm,n_init=16,n_local=256,block=64,top_k=4,representatives=2,exec_block=128", "bf16"},
          Case{"esa,n_init=4,n_local=256,k=64,chunk=128,score=exact", "f32"},
          Case{kCompressedEsa, "q8"},
          Case{"quest,page=16,budget=256", "bf16"},
          Case{"moba,chunk=128,top_k=3", "q8"}};
}

INSTANTIATE_TEST_SUITE_P(Every, ContextTest, testing::ValuesIn(Cases()), [](const auto& test) {
  std::string name = std::to_string(test.index) + "_" + test.param.attention;
  name = name.substr(0, name.find(','));
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name + "_" + test.param.kv_type;
});

EngineOptions FullInFloat32(const ModelFile& model) {
  return {.model_path = model.path(), .attention = "full", .compute = "f32", .kv_may_leave = true};
}

// A file in the making with 300 tokens; null where they could not be read.
auto BeginToRead(Engine& engine, const EngineOptions& options, const std::string& path) {
  const auto setup = *SetupOf(engine, options, 0, true, "");
  auto ingest = *ContextIngest::Begin(engine, path, setup, /*restart=*/true);
  if (!ingest->Read(TinyTokens(300, 256, 1), {})) ingest = nullptr;
  return ingest;
}

TEST(Context, AFileThatIsCutWhileATextIsReadIntoItIsNotGoneOnWith) {
  const std::string path = testing::TempDir() + "/context_test_cut.lhctx";
  const std::string partial = ContextWriter::PartialPath(path);
  const ModelFile model(TinyLlama(kTiny));
  const auto options = FullInFloat32(model);
  const auto engine = *Engine::Load(options);
  const auto ingest = BeginToRead(*engine, options, path);
  ASSERT_TRUE(ingest);
  EXPECT_FALSE(ingest->was_cut());
  std::filesystem::resize_file(partial, std::filesystem::file_size(partial) / 2);
  const Status read = ingest->Read(TinyTokens(300, 256, 2), {});
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("something else cut the file"), std::string::npos)
      << read.error().message;
  EXPECT_TRUE(ingest->was_cut());
  EXPECT_FALSE(ingest->Finish());
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove(partial);
}

TEST(Context, IsRefusedByAnotherModelMethodOrType) {
  const std::string path = testing::TempDir() + "/context_test_other.lhctx";
  std::filesystem::remove(path);
  const ModelFile model(TinyLlama(kTiny));
  const auto options = FullInFloat32(model);
  {
    const auto engine = *Engine::Load(options);
    const auto ingest = BeginToRead(*engine, options, path);
    ASSERT_TRUE(ingest);
    ASSERT_TRUE(ingest->Finish());
  }
  const auto setup = *ReadContextSetup(path);
  EXPECT_TRUE(setup.chat);
  EXPECT_EQ(OptionsFor(setup, {})->kv_type, "f32");
  EXPECT_TRUE(OptionsFor(setup, {.attention = "full", .compute = "f32", .kv_type = "f32"}));
  const auto refused = [&](const EngineOptions& asked, const char* flag) {
    const auto got = OptionsFor(setup, asked);
    return !got && got.error().message.find(flag) != std::string::npos;
  };
  EXPECT_TRUE(refused({.attention = "longheads"}, "--attn full, not longheads"));
  EXPECT_TRUE(refused({.compute = "bf16"}, "--compute f32, not bf16"));
  EXPECT_TRUE(refused({.kv_type = "q8"}, "--kv-type f32, not q8"));
  EXPECT_TRUE(refused({.rope = {.scale = 4.0}}, "not with --rope-scale 4"));
  TinyLlamaOptions other = kTiny;
  other.seed = 2;
  const ModelFile other_model(TinyLlama(other));
  EngineOptions wrong = *OptionsFor(setup, {.model_path = other_model.path()});
  const auto by_model = OpenContext(**Engine::Load(wrong), path);
  ASSERT_FALSE(by_model);
  EXPECT_NE(by_model.error().message.find("another model"), std::string::npos) << by_model.error().message;
  wrong = *OptionsFor(setup, {.model_path = model.path()});
  wrong.kv_type = "bf16";
  const auto by_type = OpenContext(**Engine::Load(wrong), path);
  ASSERT_FALSE(by_type);
  EXPECT_NE(by_type.error().message.find("shape or type"), std::string::npos) << by_type.error().message;
  wrong = *OptionsFor(setup, {.model_path = model.path()});
  wrong.compute = "bf16";
  const auto by_compute = OpenContext(**Engine::Load(wrong), path);
  ASSERT_FALSE(by_compute);
  EXPECT_NE(by_compute.error().message.find("--compute f32"), std::string::npos)
      << by_compute.error().message;
  wrong = *OptionsFor(setup, {.model_path = model.path()});
  wrong.attention = "longheads,chunk=16,window=64,begin=80";
  EXPECT_FALSE(OpenContext(**Engine::Load(wrong), path));
  std::filesystem::remove(path);
}

TEST(Context, IsRefusedWhereMethodOrRopeMeanAnotherThing) {
  const std::string path = testing::TempDir() + "/context_test_meaning.lhctx";
  const ModelFile model(TinyLlama(kTiny));
  const EngineOptions options{
      .model_path = model.path(), .attention = "full", .compute = "f32", .kv_may_leave = true};
  const auto write = [&](const std::string& in_full) {
    std::filesystem::remove(path);
    const auto engine = *Engine::Load(options);
    ContextSetup setup = *SetupOf(*engine, options, 0, true, "");
    EXPECT_EQ(setup.attention_in_full, *FullSpec("full"));
    if (!in_full.empty()) setup.attention_in_full = in_full;
    const auto ingest = *ContextIngest::Begin(*engine, path, setup, /*restart=*/true);
    ASSERT_TRUE(ingest->Read(TinyTokens(300, 256, 1), {}));
    ASSERT_TRUE(ingest->Finish());
  };
  const auto refusal = [&](const EngineOptions& with) {
    const auto opened = OpenContext(**Engine::Load(with), path);
    return opened ? "" : opened.error().message;
  };
  write("");
  EXPECT_EQ(refusal(options), "");
  // No state of these methods shows which of them it was.
  EngineOptions other = options;
  other.attention = "streaming-llm";
  EXPECT_NE(refusal(other).find("was read with none+full"), std::string::npos) << refusal(other);
  other = options;
  other.rope.scale = 2;
  EXPECT_NE(refusal(other).find("RoPE"), std::string::npos) << refusal(other);
  // A program to come, whose default is another.
  write("none+full,option=3");
  EXPECT_NE(refusal(options).find("was read with none+full,option=3"), std::string::npos) << refusal(options);
  std::filesystem::remove(path);
}

// A reading or an addition that nobody finished, in a folder of its own.
class UnfinishedContextTest : public testing::Test {
 protected:
  static constexpr int64_t kRead = 300, kAdded = 100;

  UnfinishedContextTest()
      : model_(TinyLlama(kTiny)),
        folder_(testing::TempDir() + "/context_test_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/book.lhctx";
  }
  ~UnfinishedContextTest() override { std::filesystem::remove_all(folder_); }

  // The least, or more: larger blocks do not find their memory in the first, and in the second they do.
  static constexpr uint64_t kLeastRam = 1 << 20, kMuchRam = 1 << 30;

  static EngineOptions Options(const ModelFile& model, uint64_t kv_ram = kLeastRam) {
    return {.model_path = model.path(),
            .attention = "full",
            .compute = "f32",
            .kv_type = "bf16",
            .kv_ram = kv_ram,
            .kv_disk = testing::TempDir(),
            .kv_may_leave = true,
            .threads = 2};
  }
  static std::unique_ptr<Engine> Load(const ModelFile& model, uint64_t kv_ram = kLeastRam) {
    return *Engine::Load(Options(model, kv_ram));
  }
  Result<std::unique_ptr<ContextIngest>> Begin(Engine& engine, bool restart, int64_t block_ram = 0) const {
    ContextSetup setup = *SetupOf(engine, Options(model_), 0, /*chat=*/false, "");
    if (block_ram > 0) setup.blocks.ram = block_ram;
    return ContextIngest::Begin(engine, path_, setup, restart, kRead);
  }
  void Read(ContextIngest& ingest, int64_t n) const {
    const Status read = ingest.Read(TinyTokens(n, 256, 1), {});
    ASSERT_TRUE(read) << read.error().message;
  }

  // That none of these refusals changes anything: of a memory, and of a disk, that have no room.
  template <typename Call>
  void ExpectKept(const Call& call) const {
    class NoDisk : public FileFaults {
     public:
      NoDisk() { InstallFileFaults(this); }
      ~NoDisk() override { InstallFileFaults(nullptr); }
      Verdict Before(const FileOperation& operation) override {
        return {.error = operation.call == FileCall::kFreeSpace ? EIO : 0};
      }
    };
    const FolderImage before = ReadFolder(folder_);
    {
      const PretendedMemory little(1 << 10);
      const auto result = call();
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, ErrorKind::kOutOfMemory) << result.error().message;
    }
    EXPECT_TRUE(ReadFolder(folder_) == before);
    {
      const NoDisk none;
      const auto result = call();
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, ErrorKind::kIo) << result.error().message;
    }
    EXPECT_TRUE(ReadFolder(folder_) == before);
  }

  const ModelFile model_;
  std::string folder_;
  std::string path_;
};

TEST_F(UnfinishedContextTest, AReadingIsNotThrownAwayForOneThatHasNoRoom) {
  const auto engine = Load(model_);
  Read(**Begin(*engine, /*restart=*/false), kRead);
  ExpectKept([&] { return Begin(*engine, /*restart=*/true); });
  EXPECT_EQ((*ContextIngest::Resume(*engine, path_))->session().size(), kRead);
  const auto begun = Begin(*engine, /*restart=*/true);
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_EQ((*begun)->session().size(), 0);
}

TEST_F(UnfinishedContextTest, AnAdditionIsNotDroppedForOneThatIsRefused) {
  const auto engine = Load(model_);
  {
    const auto ingest = *Begin(*engine, /*restart=*/false);
    Read(*ingest, kRead);
    ASSERT_TRUE(ingest->Finish());
  }
  Read(**ContextIngest::Append(*engine, path_), kAdded);
  const auto anew = [this](Engine& by) { return ContextIngest::Append(by, path_, /*restart=*/true, kAdded); };
  ExpectKept([&] { return anew(*engine); });
  TinyLlamaOptions other = kTiny;
  other.seed = 2;
  const ModelFile other_model(TinyLlama(other));
  const FolderImage before = ReadFolder(folder_);
  const auto refused = anew(*Load(other_model));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another model"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(ReadFolder(folder_) == before);
  EXPECT_EQ((*ContextIngest::Append(*engine, path_))->session().size(), kRead + kAdded);
  const auto append = anew(*engine);
  ASSERT_TRUE(append) << append.error().message;
  EXPECT_EQ((*append)->session().size(), kRead);
}

TEST_F(UnfinishedContextTest, GoesOnInSmallerBlocksWhereMemoryHasNoRoomForThose) {
  constexpr int64_t kMany = 132'000;  // a block behind so many is twice the least one, where memory has room
  constexpr int64_t kMuch = int64_t{1} << 40;
  constexpr int64_t own = kLeastRam;
  const auto engine = Load(model_, kMuchRam);
  Read(**Begin(*engine, /*restart=*/false, kMuch), kRead);
  const auto plan = [&](int64_t block_ram) {
    engine->FitBlocksTo({.ram = block_ram});
    return engine->PlanMemory(kMany).total();
  };
  const uint64_t large = plan(kMuch), small = plan(own);
  ASSERT_GT(large, small + (1 << 20));
  ASSERT_EQ(engine->block_fit().ram, own);
  const auto ingest = *ContextIngest::Resume(*engine, path_);
  CancelToken cancel;  // it is not to be read to its end
  cancel.Cancel();
  const std::vector<TokenId> more = TinyTokens(kMany - kRead, 256, 2);
  const auto go_on = [&](uint64_t memory) {
    const PretendedMemory pretended(memory);
    const Status read = ingest->Read(more, {.cancel = &cancel});
    return read ? ErrorKind::kInvalidInput : read.error().kind;
  };
  EXPECT_EQ(go_on(large + (1 << 20)), ErrorKind::kCancelled);
  EXPECT_EQ(engine->block_fit().ram, kMuch);
  EXPECT_EQ(go_on(small + (large - small) / 2), ErrorKind::kCancelled);
  EXPECT_EQ(engine->block_fit().ram, own);
  EXPECT_EQ(go_on(1 << 10), ErrorKind::kOutOfMemory);
}

TEST_F(UnfinishedContextTest, GoesOnInSmallerBlocksWhereItsOwnRamIsLess) {
  constexpr int64_t kMany = 132'000;
  Read(**Begin(*Load(model_, kMuchRam), /*restart=*/false, kMuchRam), kRead);
  CancelToken cancel;
  cancel.Cancel();
  for (const uint64_t ram : {kMuchRam, kLeastRam}) {
    const auto engine = Load(model_, ram);
    const int64_t own = engine->block_fit().ram;
    const auto ingest = *ContextIngest::Resume(*engine, path_);
    EXPECT_EQ(engine->block_fit().ram, kMuchRam);
    const Status read = ingest->Read(TinyTokens(kMany - kRead, 256, 2), {.cancel = &cancel});
    EXPECT_EQ(read.error().kind, ErrorKind::kCancelled);
    EXPECT_EQ(engine->block_fit().ram, own);
  }
}

TEST_F(UnfinishedContextTest, GoesOnInMorePartsWhereMemoryHasNoRoomForFew) {
  constexpr int64_t kMany = 132'000;
  const auto engine = Load(model_, kMuchRam);
  const auto plan = [&](int64_t parts) {
    engine->FitBlocksTo({.parts = parts});
    return engine->PlanMemory(kMany).total();
  };
  const uint64_t small = plan(32), large = plan(4);
  ASSERT_GT(large, small + (1 << 20));
  Read(**Begin(*engine, /*restart=*/false), kRead);
  const auto ingest = *ContextIngest::Resume(*engine, path_);
  CancelToken cancel;
  cancel.Cancel();
  const auto go_on = [&](uint64_t memory) {
    const PretendedMemory pretended(memory);
    const Status read = ingest->Read(TinyTokens(kMany - kRead, 256, 2), {.cancel = &cancel});
    return read ? ErrorKind::kInvalidInput : read.error().kind;
  };
  EXPECT_EQ(go_on(large + (1 << 20)), ErrorKind::kCancelled);
  EXPECT_EQ(engine->block_fit().parts, 4);
  EXPECT_EQ(go_on(small + (large - small) / 2), ErrorKind::kCancelled);
  EXPECT_EQ(engine->block_fit().parts, 32);
}

TEST_F(UnfinishedContextTest, GoesOnInThePartsThatItBeganWith) {
  const auto engine = Load(model_);
  engine->FitBlocksTo({.parts = 8});
  {
    const auto ingest = *Begin(*engine, /*restart=*/false);
    Read(*ingest, kRead);
    EXPECT_EQ(ingest->setup().blocks.parts, 8);
  }
  engine->FitBlocksTo({.parts = 16});
  {
    const auto ingest = *ContextIngest::Resume(*engine, path_);
    EXPECT_EQ(engine->block_fit().parts, 8);
    ASSERT_TRUE(ingest->Finish());
  }
  EXPECT_EQ(engine->block_fit().parts, 16);
  EXPECT_EQ(ReadContextSetup(path_)->blocks.parts, 8);
  // What is added is read in the parts of whoever adds it.
  const auto append = *ContextIngest::Append(*engine, path_);
  EXPECT_EQ(engine->block_fit().parts, 16);
}

}  // namespace
}  // namespace longheads
