#include "attention/block_vectors.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/state_archive.h"
#include "base/check.h"

namespace longheads {

BlockVectors::BlockVectors(int64_t tokens, int64_t n_kv_heads, int64_t floats)
    : tokens_(tokens), n_kv_heads_(n_kv_heads), floats_(floats), vectors_(n_kv_heads * kTogether * floats) {}

void BlockVectors::Truncate(int64_t m) {
  LH_CHECK(m <= n_tokens_);
  n_tokens_ = m;
  vectors_.Resize((m / tokens_ + kTogether - 1) / kTogether);
}

std::string BlockVectors::Layout() const {
  return fmt::format("block-vectors 1: {} tokens, {} x {}", tokens_, n_kv_heads_, floats_);
}

void BlockVectors::Save(int64_t from, int64_t n, StateWriter& added, StateWriter&) const {
  LH_CHECK(n == n_tokens_);
  const VectorBlocks blocks{.n_heads = n_kv_heads_, .together = kTogether, .floats = floats_};
  blocks.Write(vectors_, from / tokens_, n / tokens_, added);
}

void BlockVectors::RestoreAdded(int64_t from, int64_t n, StateReader& added) {
  const VectorBlocks blocks{.n_heads = n_kv_heads_, .together = kTogether, .floats = floats_};
  blocks.Read(added, from / tokens_, n / tokens_, vectors_);
}

void BlockVectors::RestoreLatest(int64_t n, StateReader&) { n_tokens_ = n; }

uint64_t BlockVectors::BytesFor(int64_t n, int64_t tokens, int64_t n_kv_heads, int64_t floats) {
  const int64_t n_together = (n / tokens + kTogether - 1) / kTogether;
  return sizeof(float) * static_cast<uint64_t>(n_together * n_kv_heads * kTogether * floats);
}

void BlockVectors::Extend(const StepInput& input, Make make) {
  LH_CHECK(n_tokens_ == input.token_begin);
  const auto cancelled = [&] { return input.cancel != nullptr && input.cancel->cancelled(); };
  const int64_t end = (input.token_begin + input.n_tokens) / tokens_;  // blocks that are complete by now
  const int64_t d = input.sequence->kv->geometry().head_dim;
  vectors_.Resize((end + kTogether - 1) / kTogether);
  for (int64_t first = input.token_begin / tokens_; first < end;) {
    const int64_t last = std::min(end, (first / kTogether + 1) * kTogether);
    float* const vectors = vectors_.Mutable(first / kTogether);
    input.pool->Run(n_kv_heads_, [&](int64_t kv_head, int) {
      std::vector<float> page;
      StoredKeys keys(*input.sequence->kv, input.layer, kv_head, page);
      for (int64_t block = first; block < last && !cancelled(); ++block) {
        make(keys, block * tokens_, (block + 1) * tokens_, d,
             vectors + (kv_head * kTogether + block % kTogether) * floats_);
      }
    });
    if (cancelled()) return;
    first = last;
  }
  n_tokens_ = input.token_begin + input.n_tokens;
}

void BlockVectors::Score(std::span<const float* const> queries, int64_t kv_head, int64_t begin, int64_t end,
                         const AttentionKernels& kernels, float* workspace, float* scores,
                         int64_t stride) const {
  for (int64_t first = begin; first < end;) {
    const int64_t last = std::min(end, (first / kTogether + 1) * kTogether);
    const float* const vectors =
        vectors_[first / kTogether] + (kv_head * kTogether + first % kTogether) * floats_;
    kernels.scores(queries, vectors, last - first, floats_, scores + first - begin, stride, workspace);
    first = last;
  }
}

}  // namespace longheads
