// A trace of a whole run: it holds what an observer of its own hears, of the tokens that led to the answer,
// with their text; and tracing changes no token.
#include "engine/selection_trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/tiny_transformer.h"
#include "trace/trace_reader.h"

namespace longheads {
namespace {

const TinyLlamaOptions kModel = {.n_layers = 3,
                                 .embed = 32,
                                 .n_heads = 4,
                                 .n_kv_heads = 2,
                                 .head_dim = 16,
                                 .ffn = 48,
                                 .context_length = 4096};
constexpr int64_t kPrompt = 300, kAnswer = 12;

struct Trace {
  TraceHeader header;
  std::vector<TraceTokens> tokens;
  std::vector<TokenSelection> selections;
  std::vector<PromptCounts> counts;
};

class TracedRun : public testing::TestWithParam<const char*> {
 protected:
  std::string path_ =
      std::filesystem::temp_directory_path() / fmt::format("longheads-run-{}.trace", getpid());
  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> prompt_ = TinyTokens(kPrompt, 256, 1);

  void SetUp() override {
    const ModelFile file(TinyLlama(kModel));
    Result<std::unique_ptr<Engine>> engine =
        Engine::Load({.model_path = file.path(), .attention = GetParam(), .compute = "f32", .threads = 2});
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // In two calls, as experiments read prompts that have a beginning in common.
  std::vector<TokenId> Answer() {
    Session session = engine_->NewSession();
    const std::span<const TokenId> prompt(prompt_);
    EXPECT_TRUE(engine_->Prefill(session, prompt.first(200), Outputs::kNone, {}));
    const auto hidden = engine_->Prefill(session, prompt.subspan(200), Outputs::kLast, {});
    EXPECT_TRUE(hidden);
    const auto generated = engine_->Generate(session, *hidden, {.max_tokens = kAnswer});
    EXPECT_TRUE(generated);
    return generated->tokens;
  }

  Trace Read() {
    Trace trace;
    const Status read = ReadTraceFile(path_, {.on_header = [&](const TraceHeader& header) -> Status {
                                                trace.header = header;
                                                return {};
                                              },
                                              .on_tokens = [&](const TraceTokens& tokens) -> Status {
                                                trace.tokens.push_back(tokens);
                                                return {};
                                              },
                                              .on_selection = [&](const TokenSelection& selection) -> Status {
                                                trace.selections.push_back(selection);
                                                return {};
                                              },
                                              .on_counts = [&](const PromptCounts& counts) -> Status {
                                                trace.counts.push_back(counts);
                                                return {};
                                              }});
    EXPECT_TRUE(read) << read.error().message;
    return trace;
  }
};

TEST_P(TracedRun, HoldsWhatWasSeen) {
  const std::vector<TokenId> untraced = Answer();
  std::vector<TokenSelection> heard;
  const int64_t last = engine_->ModelSize(kPrompt) - 1;
  const HeadShape shape{
      .n_heads = kModel.n_heads, .n_kv_heads = kModel.n_kv_heads, .head_dim = kModel.head_dim};
  SelectionRecorder recorder(kModel.n_layers, shape, last,
                             [&](const TokenSelection& token) { heard.push_back(token); });
  engine_->SetObserver(&recorder);
  EXPECT_EQ(Answer(), untraced);

  auto trace = SelectionTrace::Start(
      *engine_, {.path = path_, .program = "test", .attention = GetParam(), .prompt = true}, prompt_);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(Answer(), untraced);
  ASSERT_TRUE((*trace)->Finish(untraced));

  const Trace read = Read();
  EXPECT_EQ(read.header.attention, GetParam());
  EXPECT_EQ(read.header.n_layers, kModel.n_layers);
  EXPECT_EQ(read.header.prompt_tokens, last + 1);
  EXPECT_EQ(read.header.blocks, engine_->SelectionBlocks());
  ASSERT_EQ(read.tokens.size(), 2u);
  std::vector<TokenId> all = prompt_;
  all.insert(all.end(), untraced.begin(), untraced.end());
  std::vector<TokenId> ids = read.tokens[0].ids;
  ids.insert(ids.end(), read.tokens[1].ids.begin(), read.tokens[1].ids.end());
  EXPECT_EQ(ids, engine_->ModelTokens(all));
  std::string text;
  for (const TokenId token : engine_->ModelTokens(prompt_))
    text += engine_->tokenizer().TokenBytes(token, true);
  EXPECT_EQ(read.tokens[0].text, text);

  ASSERT_EQ(read.selections.size(), heard.size());
  EXPECT_GE(read.selections.size(), untraced.size());
  for (std::size_t i = 0; i < heard.size(); ++i) {
    const TokenSelection& a = heard[i];
    const TokenSelection& b = read.selections[i];
    EXPECT_EQ(b.position, last + static_cast<int64_t>(i));
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(b.phase, i == 0 ? Phase::kPrefill : Phase::kDecode);
    ASSERT_EQ(a.heads.size(), b.heads.size());
    for (std::size_t row = 0; row < a.heads.size(); ++row) {
      ASSERT_EQ(a.heads[row].seen, b.heads[row].seen);
      ASSERT_FALSE(b.heads[row].seen.empty());
      ASSERT_EQ(b.heads[row].seen.back().end <= b.position + 1, true);
      ASSERT_EQ(a.heads[row].taken.size(), b.heads[row].taken.size());
    }
  }
  int64_t counted = 0;
  for (const PromptCounts& counts : read.counts) {
    EXPECT_EQ(counts.token_begin, counted);
    counted = counts.token_end;
  }
  EXPECT_EQ(counted, last + 1);
}

// Where no prompt is counted, pictures have the chunks that are chosen as their columns.
TEST_P(TracedRun, HasColumnsOfChunks) {
  auto trace =
      SelectionTrace::Start(*engine_, {.path = path_, .program = "test", .attention = GetParam()}, prompt_);
  ASSERT_TRUE(trace);
  ASSERT_TRUE((*trace)->Finish(Answer()));
  const TraceHeader header = Read().header;
  if (header.blocks && header.blocks->tokens >= 16) {
    EXPECT_EQ(header.columns, *header.blocks);
  } else {
    EXPECT_GE(header.columns.tokens, 128);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, TracedRun,
                         testing::Values("longheads,chunk=16,window=64,begin=64", "full",
                                         "infllm,n_init=4,n_local=64,block=8,top_k=3,exec_block=32",
                                         "quest,page=8,budget=40,dense_layers=1",
                                         "moba,chunk=16,top_k=3,decode=gated",
                                         "landmark,block=9,top_k=2,token=7,train_context=100"));

class UnwrittenTrace : public TracedRun {};

TEST_P(UnwrittenTrace, DoesNotEndTheRun) {
  const std::vector<TokenId> untraced = Answer();
  auto trace = SelectionTrace::Start(
      *engine_, {.path = "/dev/full", .program = "test", .attention = GetParam()}, prompt_);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(Answer(), untraced);
  const Status finished = (*trace)->Finish(untraced);
  ASSERT_FALSE(finished);
  EXPECT_NE(finished.error().message.find("/dev/full"), std::string::npos);
  EXPECT_FALSE(SelectionTrace::Start(*engine_, {.path = "/nowhere/at/all/x"}, prompt_));
}

TEST_P(UnwrittenTrace, LeavesNoFileWhereItIsGivenUp) {
  auto trace =
      SelectionTrace::Start(*engine_, {.path = path_, .program = "test", .attention = GetParam()}, prompt_);
  ASSERT_TRUE(trace);
  Answer();
  trace->reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
  Answer();  // nobody listens any more
}

INSTANTIATE_TEST_SUITE_P(Methods, UnwrittenTrace, testing::Values("longheads,chunk=16,window=64,begin=64"));

}  // namespace
}  // namespace longheads
