// A disk and a memory that refuse while a text is read into a file, added to, opened and asked, or kept
// partly on disk: calls and allocations fail in turn. Each is an error or makes no difference; what comes
// next goes on, and ends in the same bytes. What formats/context_faults_test.cc shows of the file alone, this
// shows of the engine on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/context.h"
#include "formats/context_reader.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_transformer.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

const TinyLlamaOptions kTiny = {.n_layers = 3,
                                .embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 32,  // the least whose pages are packed on disk
                                .ffn = 48,
                                .context_length = 8192};
constexpr int64_t kText =
    2603;  // a block and a part of one; 66 pages, 2 more than the least that memory may hold
constexpr int64_t kMore = 300;

// One call fails, or transfers are short.
class Faults final : public FileFaults {
 public:
  Faults() { InstallFileFaults(this); }
  ~Faults() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    if (left_.fetch_sub(1) == 0) return {.error = error_};
    const bool transfer = operation.call == FileCall::kRead || operation.call == FileCall::kWrite;
    return {.most = transfer ? most_.load() : UINT64_MAX};
  }
  void FailCall(int64_t call, int error) {
    error_ = error;
    left_ = call;
  }
  void AtMost(uint64_t bytes) { most_ = bytes; }
  // Also whether the call came that was to fail.
  bool Stop() {
    most_ = UINT64_MAX;
    return left_.exchange(-1) < 0;
  }

 private:
  std::atomic<int64_t> left_ = -1;
  std::atomic<int> error_ = 0;
  std::atomic<uint64_t> most_ = UINT64_MAX;
};

struct Scenario {
  const char* name;
  std::function<Status(Engine&)> prepare;  // what is there before, in a folder that is empty
  std::function<Status(Engine&)> attempt;
  std::function<Status(Engine&)> recover;  // what a user does after an error
};

class ContextEngineFaultsTest : public testing::TestWithParam<const char*> {
 protected:
  ContextEngineFaultsTest() {
    std::string name =
        testing::UnitTest::GetInstance()->current_test_info()->name();  // tests run side by side
    std::ranges::replace(name, '/', '_');
    folder_ = testing::TempDir() + "/context_engine_faults_" + name;
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ + "/book.lhctx";
    const auto ingest = [this](Engine& engine) { return Ingest(engine); };
    const auto go_on = [this](Engine& engine) { return IngestOrGoOn(engine); };
    const auto nothing = [](Engine&) { return Status(); };
    const auto append = [this](Engine& engine) { return Append(engine); };
    const auto ask = [this](Engine& engine) { return OpenAndAsk(engine); };
    const auto read = [this](Engine& engine) { return ReadInMemory(engine); };
    for (const Scenario& one :
         {Scenario{"Ingest", nothing, ingest, go_on}, Scenario{"Append", ingest, append, append},
          Scenario{"Ask", ingest, ask, ask}, Scenario{"Tiers", nothing, read, read}}) {
      if (std::string_view(GetParam()) == one.name) scenario_ = one;
    }
  }
  ~ContextEngineFaultsTest() override { fs::remove_all(folder_); }

  std::unique_ptr<Engine> Load() const { return std::move(*Engine::Load(options_)); }

  static std::span<const TokenId> Part(int64_t begin, int64_t end) {
    static const std::vector<TokenId> tokens = TinyTokens(kText + kMore, 256, 1);
    return std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  Status Ingest(Engine& engine) {
    LH_ASSIGN(const ContextSetup setup, SetupOf(engine, options_, 0, /*chat=*/false, ""));
    LH_ASSIGN(const auto ingest, ContextIngest::Begin(engine, path_, setup, /*restart=*/false));
    LH_TRY(ingest->Read(Part(0, kText), {}));
    return ingest->Finish();
  }
  Status IngestOrGoOn(Engine& engine) {
    if (fs::exists(path_)) return {};  // the error came behind the end
    if (!fs::exists(ContextWriter::PartialPath(path_))) return Ingest(engine);
    const auto ingest = ContextIngest::Resume(engine, path_);
    if (!ingest) return Ingest(engine);  // nothing was committed
    LH_TRY((*ingest)->Read(Part((*ingest)->session().size(), kText), {}));
    return (*ingest)->Finish();
  }
  Status Append(Engine& engine) {
    LH_ASSIGN(const auto ingest, ContextIngest::Append(engine, path_));
    LH_TRY(ingest->Read(Part(ingest->session().size(), kText + kMore), {}));
    return ingest->Finish();
  }
  Status OpenAndAsk(Engine& engine) {
    LH_ASSIGN(Session session, OpenContext(engine, path_));
    return Talk(engine, session);
  }
  Status ReadInMemory(Engine& engine) {
    Session session = engine.NewSession();
    LH_TRY(engine.Prefill(session, Part(0, kText), Outputs::kLast, {}));
    return Talk(engine, session);
  }
  Status Talk(Engine& engine, Session& session) {
    LH_ASSIGN(answer_.prompt, engine.Prefill(session, Part(kText, kText + 20), Outputs::kLast, {}));
    Session* const self = &session;
    LH_ASSIGN(answer_.token, engine.Decode(std::span(&self, 1), Part(kText + 20, kText + 21)));
    return {};
  }

  // What an attempt comes to: the files, and what the model said.
  struct Answer {
    std::vector<float> prompt;
    std::vector<float> token;
    bool operator==(const Answer&) const = default;
  };
  struct Outcome {
    FolderImage files;
    Answer answer;
    bool operator==(const Outcome&) const = default;
  };
  Outcome Reached() { return {ReadFolder(folder_), std::exchange(answer_, {})}; }

  void SetUp() override {
    const auto engine = Load();
    const Status prepared = scenario_.prepare(*engine);
    ASSERT_TRUE(prepared) << prepared.error().message;
    begin_ = ReadFolder(folder_);
    const Status ended = scenario_.attempt(*engine);
    ASSERT_TRUE(ended) << ended.error().message;
    expected_ = Reached();
  }

  // One attempt, `disturbed`; after it, what a user would do next, on the engine that had the error and on a
  // new one. Whether the attempt had an error.
  bool Attempt(const std::function<Status(Engine&)>& disturbed, bool same_engine) {
    WriteFolder(folder_, begin_);
    std::unique_ptr<Engine> engine = Load();
    const Status status = disturbed(*engine);
    if (!status) {
      EXPECT_FALSE(status.error().message.empty());
      if (!same_engine) engine = Load();
      const Status recovered = scenario_.recover(*engine);
      EXPECT_TRUE(recovered) << status.error().message << "; then " << recovered.error().message;
    }
    EXPECT_TRUE(Reached() == expected_) << (status ? "without an error" : status.error().message);
    return !status;
  }

  const ModelFile model_{TinyLlama(kTiny)};
  const EngineOptions options_{
      .model_path = model_.path(),
      .attention = "longheads,chunk=64,window=512,begin=640",
      .compute = "f32",
      .kv_type = "bf16",
      .kv_ram = static_cast<uint64_t>(KvPool::kLeastPages * 2 * kPageTokens * 32 * 2),
      .kv_disk = testing::TempDir(),
      .threads = 2};
  std::string folder_;
  std::string path_;
  Scenario scenario_;
  FolderImage begin_;
  Outcome expected_;
  Answer answer_;
};

// All of them; sanitized, a fifth of the first 40, then a twentieth.
TEST_P(ContextEngineFaultsTest, CallsThatFailAreErrorsOrMakeNoDifference) {
  Faults faults;
  int n_errors = 0;
  bool came = true;
  for (int64_t call = 0; came && !HasFailure(); call += kSanitized ? (call < 40 ? 5 : 20) : 1) {
    SCOPED_TRACE("call " + std::to_string(call));
    const auto disturbed = [&](Engine& engine) {
      faults.FailCall(call, call % 2 == 0 ? EIO : ENOSPC);
      const Status status = scenario_.attempt(engine);
      came = faults.Stop();
      return status;
    };
    n_errors += Attempt(disturbed, /*same_engine=*/call % 3 == 0);
  }
  EXPECT_GT(n_errors, 0);
}

TEST_P(ContextEngineFaultsTest, ShortTransfersMakeNoDifference) {
  Faults faults;
  for (const uint64_t most : {uint64_t{1000}, uint64_t{4096}}) {
    const auto disturbed = [&](Engine& engine) {
      faults.AtMost(most);
      const Status status = scenario_.attempt(engine);
      faults.Stop();
      return status;
    };
    EXPECT_FALSE(Attempt(disturbed, /*same_engine=*/true));
  }
}

// Some of them: all of the thousands would take minutes. Of the file below it all fail, in
// formats/context_faults_test.cc.
TEST_P(ContextEngineFaultsTest, AllocationsThatFailAreErrorsOrMakeNoDifference) {
  constexpr int64_t kAll = kSanitized ? 20 : 40;
  int64_t stride = 1;
  int n_errors = 0;
  bool came = true;
  for (int64_t k = 1; came && !HasFailure(); k += stride) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    // Of the many that follow, each a tenth more than the one before.
    if (k > kAll) stride = k / (kSanitized ? 4 : 10);
    const auto disturbed = [&](Engine& engine) {
      FailAllocation(k);
      const Status status = [&]() -> Status {
        try {
          return scenario_.attempt(engine);
        } catch (const std::bad_alloc&) {  // of a call that gives no Result, as NewSession
          return MakeError(ErrorKind::kOutOfMemory, "no memory");
        }
      }();
      came = AllocationFailed();
      FailAllocation(0);
      return status;
    };
    n_errors += Attempt(disturbed, /*same_engine=*/k % 3 == 0);
  }
  EXPECT_GT(n_errors, 10);
}

// formats/context_power_loss_test.cc tries every loss of the file alone; here pages come from a pool that
// writes while others compute.
class ContextEnginePowerLossTest : public ContextEngineFaultsTest {};

TEST_P(ContextEnginePowerLossTest, LeavesATextThatGoesOnToTheSameBytes) {
  WriteFolder(folder_, begin_);
  const std::unique_ptr<Engine> engine = Load();
  WrittenFiles written(folder_);
  const Status status = scenario_.attempt(*engine);
  written.Stop();
  ASSERT_TRUE(status) << status.error().message;
  // That readers see: none where there is no file. A file that they cannot open is an error.
  const auto n_tokens = [this]() -> std::size_t {
    if (!fs::exists(path_)) return 0;
    const auto reader = ContextReader::Open(path_, {});
    EXPECT_TRUE(reader) << reader.error().message;
    return reader ? reader->contents().tokens.size() : 0;
  };
  const std::size_t n_old = begin_.empty() ? 0 : static_cast<std::size_t>(kText), n_new = n_tokens();
  constexpr int kEach = kSanitized ? 41 : 3;
  int n = 0;
  int n_gone_on = 0;
  written.ForEachPowerLoss({}, [&](const FolderImage& image, int) {
    WriteFolder(folder_, image);
    const std::size_t n_left = n_tokens();
    EXPECT_TRUE(n_left == n_old || n_left == n_new) << n_left;
    if (n++ % kEach == 0) {
      const std::unique_ptr<Engine> next = Load();
      const Status recovered = scenario_.recover(*next);
      EXPECT_TRUE(recovered) << recovered.error().message;
      // Of one that was finished, the second superblock may be lost.
      if (n_left != n_new) {
        EXPECT_TRUE(Reached() == expected_);
        ++n_gone_on;
      }
      EXPECT_EQ(n_tokens(), n_new);
    }
    return !HasFailure();
  });
  EXPECT_GT(n_gone_on, kSanitized ? 1 : 10);
}

INSTANTIATE_TEST_SUITE_P(Every, ContextEnginePowerLossTest, testing::Values("Ingest", "Append"),
                         [](const auto& instance) { return std::string(instance.param); });

INSTANTIATE_TEST_SUITE_P(Every, ContextEngineFaultsTest, testing::Values("Ingest", "Append", "Ask", "Tiers"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace longheads
