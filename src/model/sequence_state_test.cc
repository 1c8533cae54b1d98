// A sequence whose states were saved layer by layer goes on in another one as it would have itself.
#include "model/sequence_state.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

const TinyLlamaOptions kTiny = {.n_layers = 3,
                                .embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .ffn = 48,
                                .context_length = 4096,
                                .vocabulary = false};

// The saves of every layer, as a file would keep them.
struct Kept {
  std::vector<std::vector<SavedState>> layers;  // [n_layers][n_saves]
  int64_t n_tokens = 0;

  void Save(SequenceState& sequence) {
    layers.resize(sequence.policies.size());
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      layers[layer].push_back(sequence.SaveState(static_cast<int64_t>(layer), sequence.unchanged));
    }
    n_tokens = sequence.unchanged = sequence.size();
  }
  Status RestoreInto(SequenceState& sequence) const {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      std::vector<std::span<const std::byte>> added;
      for (const SavedState& save : layers[layer]) added.push_back(save.added);
      LH_TRY(
          sequence.RestoreState(static_cast<int64_t>(layer), added, layers[layer].back().latest, n_tokens));
    }
    return {};
  }
};

class SequenceStateTest : public testing::TestWithParam<const char*> {
 protected:
  std::vector<int32_t> Tokens(int64_t n, uint64_t seed) const {
    return TinyTokens(n, kTiny.vocab_size, seed);
  }

  TinyTransformer tiny_{{.model = kTiny, .attention = GetParam(), .kv_type = KvType::kBF16}};
};

INSTANTIATE_TEST_SUITE_P(
    Methods, SequenceStateTest,
    testing::Values("full", "longheads,chunk=16,window=64,begin=128",
                    "longheads,chunk=16,window=64,begin=128,fix=both",
                    "quest,page=16,budget=64,dense_layers=2", "moba,chunk=16,top_k=2,decode=gated",
                    "lm-infinite,global=4,local=40,top_k=5,top_k_from=1,top_k_at=40",
                    "infllm,n_init=10,n_local=60,block=12,top_k=3,representatives=2,exec_block=32",
                    "esa,n_init=4,k=32,n_local=100,chunk=16,score=exact",
                    "yarn:factor=2+self-extend,group=4,window=40"));

TEST_P(SequenceStateTest, GoesOnInAnother) {
  SequenceState original = tiny_->NewSequence();
  Kept kept;
  tiny_.Prefill(original, Tokens(500, 1));
  kept.Save(original);
  tiny_.Prefill(original, Tokens(13, 2));
  tiny_.Decode(original, Tokens(6, 3));
  kept.Save(original);
  original.Truncate(original.RewindPoint(original.size() - 2));
  tiny_.Decode(original, Tokens(40, 4));
  EXPECT_LT(original.unchanged, kept.n_tokens);
  kept.Save(original);

  SequenceState restored = tiny_->NewSequence();
  restored.kv = original.kv.Fork();
  const Status status = kept.RestoreInto(restored);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_LE(restored.RewindPoint(restored.size() - 1), original.RewindPoint(original.size() - 1));
  SequenceState fork = restored.Fork();
  for (SequenceState* const one : {&restored, &fork}) {
    SequenceState twin = original.Fork();
    if (one == &fork) {
      const int64_t point = fork.RewindPoint(fork.size() - 1);
      twin.Truncate(point);
      fork.Truncate(point);
    }
    EXPECT_TRUE(SameBits(tiny_.Decode(*one, Tokens(5, 5)), tiny_.Decode(twin, Tokens(5, 5))));
    EXPECT_TRUE(SameBits(tiny_.Prefill(*one, Tokens(90, 6)), tiny_.Prefill(twin, Tokens(90, 6))));
    EXPECT_TRUE(SameBits(tiny_.Decode(*one, Tokens(5, 7)), tiny_.Decode(twin, Tokens(5, 7))));
  }
}

TEST_P(SequenceStateTest, SaysWhichLayerDoesNotFit) {
  SequenceState original = tiny_->NewSequence();
  tiny_.Prefill(original, Tokens(40, 1));
  Kept kept;
  kept.Save(original);
  kept.layers[1].back().latest.push_back({});
  SequenceState restored = tiny_->NewSequence();
  const Status status = kept.RestoreInto(restored);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message,
            "layer 1: the saved state of the attention method does not fit: it has 1 bytes too many");
  // That layer is as it was: the right bytes still go in.
  SavedState& save = kept.layers[1].back();
  save.latest.pop_back();
  const std::span<const std::byte> added[] = {save.added};
  EXPECT_TRUE(restored.RestoreState(1, added, save.latest, kept.n_tokens).has_value());
}

}  // namespace
}  // namespace longheads
