#include "attention/block_vectors.h"

#include <fmt/format.h>

#include <vector>

#include "base/cancel.h"
#include "base/check.h"

namespace longheads {

BlockVectors::BlockVectors(int64_t tokens, int64_t n_kv_heads, int64_t floats)
    : tokens_(tokens), n_kv_heads_(n_kv_heads), floats_(floats), vectors_(n_kv_heads, floats) {}

void BlockVectors::Truncate(int64_t m) {
  LH_CHECK(m <= n_tokens_);
  n_tokens_ = m;
  vectors_.Resize(m / tokens_);
}

std::string BlockVectors::Layout() const {
  return fmt::format("block-vectors 1: {} tokens, {} x {}", tokens_, n_kv_heads_, floats_);
}

void BlockVectors::Save(int64_t from, int64_t n, StateWriter& added, StateWriter&) const {
  LH_CHECK(n == n_tokens_);
  vectors_.Write(from / tokens_, n / tokens_, added);
}

void BlockVectors::RestoreAdded(int64_t from, int64_t n, StateReader& added) {
  vectors_.Read(added, from / tokens_, n / tokens_);
}

void BlockVectors::RestoreLatest(int64_t n, StateReader&) { n_tokens_ = n; }

uint64_t BlockVectors::BytesFor(int64_t n, int64_t tokens, int64_t n_kv_heads, int64_t floats) {
  return ScoredVectors::BytesFor(n / tokens, n_kv_heads, floats);
}

uint64_t BlockVectors::LastBlockBytesFor(int64_t n, int64_t tokens, int64_t n_kv_heads, int64_t floats) {
  return ScoredVectors::BytesFor(std::min<int64_t>(n / tokens, 1), n_kv_heads, floats);
}

void BlockVectors::Extend(const StepInput& input, Make make) {
  LH_CHECK(n_tokens_ == input.token_begin);
  const auto cancelled = [&] { return Cancelled(input.cancel); };
  const int64_t end = (input.token_begin + input.n_tokens) / tokens_;  // blocks that are complete by now
  const int64_t d = input.sequence->kv->geometry().head_dim;
  const int64_t first = input.token_begin / tokens_;
  if (first < end) {
    vectors_.Resize(end);
    std::vector<ScoredVectors::Place> places;
    for (int64_t block = first; block < end; ++block) places.push_back(vectors_.PlaceOf(block));
    input.pool->Run(n_kv_heads_, [&](int64_t kv_head, int) {
      std::vector<float> page, vector(static_cast<std::size_t>(floats_));
      StoredKeys keys(*input.sequence->kv, input.layer, kv_head, page);
      for (int64_t block = first; block < end && !cancelled(); ++block) {
        make(keys, block * tokens_, (block + 1) * tokens_, d, vector.data());
        places[static_cast<std::size_t>(block - first)].Set(kv_head, vector);
      }
    });
    if (cancelled()) return;
  }
  n_tokens_ = input.token_begin + input.n_tokens;
}

void BlockVectors::Score(std::span<const float* const> queries, int64_t kv_head, int64_t begin, int64_t end,
                         const AttentionKernels& kernels, float* workspace, float* scores,
                         int64_t stride) const {
  vectors_.Score(queries, kv_head, begin, end, kernels, workspace, scores, stride);
}

}  // namespace longheads
