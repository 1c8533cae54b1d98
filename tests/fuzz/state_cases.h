// What the fuzzer of saved states restores, and what its seeds are saves of: one small layer of each kind of
// state, which has read a text. An input is a byte that says which, and parts, each of 2 bytes of length and
// so many bytes: `latest`, then every save's `added`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "base/check.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/one_layer.h"

namespace longheads {

// The text goes on for some tokens after that. It crosses a page, and InfLLM's masses take more than one.
inline constexpr int64_t kStateTokens = 270, kStateTokensAfter = 10;
inline constexpr HeadShape kStateShape{.n_heads = 2, .n_kv_heads = 1, .head_dim = 4};

inline const LayerInputs& StateInputs() {
  static const LayerInputs inputs = UniformInputs(kStateShape, kStateTokens + kStateTokensAfter, 1);
  return inputs;
}

struct StateCase {
  std::shared_ptr<const Policy> policy;
  OneLayer layer;                 // of kStateTokens
  std::vector<SavedState> saves;  // three of them; the text was cut back in between
};

inline StateCase MakeStateCase(const std::string& spec) {
  AttentionModel model;
  model.shape = kStateShape;
  model.vocab_size = 16;
  model.trained_window = 1024;
  model.layout = PairLayout::kHalfSplit;
  model.trained = *TrainedFrequencies(10000, kStateShape.head_dim, {});
  const auto attention = MakeAttention(spec, model);
  LH_CHECK(attention.has_value());
  std::shared_ptr<const Policy> policy = attention->front().policy;
  OneLayer layer({.policy = *policy,
                  .kernels = *AttentionImplementations().back().table,
                  .shape = kStateShape,
                  .max_tokens = StateInputs().n});
  std::vector<SavedState> saves;
  layer.Prefill(StateInputs(), 200);
  saves.push_back(layer.Save(0));
  layer.Prefill(StateInputs(), 40);
  layer.Decode(StateInputs());
  saves.push_back(layer.Save(200));
  layer.Truncate(layer.RewindPoint(240));
  const int64_t from = layer.size();
  layer.Prefill(StateInputs(), kStateTokens - 2 - from);
  while (layer.size() < kStateTokens) layer.Decode(StateInputs());
  saves.push_back(layer.Save(from));
  return {std::move(policy), std::move(layer), std::move(saves)};
}

inline const std::vector<StateCase>& StateCases() {
  static const std::vector<StateCase> cases = [] {
    std::vector<StateCase> all;
    for (const char* const spec :
         {"full", "longheads,chunk=32,window=96,begin=96", "longheads,chunk=10,window=30,begin=30,fix=both",
          "quest,page=16,budget=64,dense_layers=0", "moba,chunk=16,top_k=2,decode=gated",
          "landmark,block=8,top_k=2,token=1", "esa,n_init=4,k=32,n_local=100,chunk=16,score=exact",
          "infllm,n_init=10,n_local=60,block=12,top_k=3,representatives=2,exec_block=32",
          "infllm,n_init=0,n_local=30,block=4,top_k=3,representatives=2,exec_block=8,per_head=on"}) {
      all.push_back(MakeStateCase(spec));
    }
    return all;
  }();
  return cases;
}

}  // namespace longheads
