#include "attention/scored_vectors.h"

#include <algorithm>
#include <vector>

#include "attention/state_archive.h"

namespace longheads {

ScoredVectors::ScoredVectors(int64_t n_heads, int64_t floats)
    : n_heads_(n_heads), floats_(floats), blocks_(n_heads * floats * kTogether) {}

uint64_t ScoredVectors::BytesFor(int64_t n, int64_t n_heads, int64_t floats) {
  return sizeof(float) * static_cast<uint64_t>(BlocksFor(n) * n_heads * floats * kTogether);
}

void ScoredVectors::Score(std::span<const float* const> queries, int64_t head, int64_t begin, int64_t end,
                          const AttentionKernels& kernels, float* workspace, float* scores,
                          int64_t stride) const {
  for (int64_t first = begin, last = 0; first < end; first = last) {
    const int64_t block = first / kTogether;
    last = std::min(end, (block + 1) * kTogether);
    if (last < end) Fetch(head, last);
    kernels.scores_of_columns(queries, blocks_[block] + head * floats_ * kTogether, first - block * kTogether,
                              last - block * kTogether, floats_, scores + first - begin, stride, workspace);
  }
}

void ScoredVectors::Fetch(int64_t head, int64_t at) const {
  constexpr int64_t kLine = 64, kMost = 8192;  // bytes; as far ahead as kernels ask at most
  LH_CHECK(at % kTogether == 0);
  const auto* const from =
      reinterpret_cast<const std::byte*>(blocks_[at / kTogether] + head * floats_ * kTogether);
  const int64_t bytes = std::min<int64_t>(kMost, floats_ * kTogether * static_cast<int64_t>(sizeof(float)));
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, /*rw=*/0, /*locality=*/2);
}

void ScoredVectors::Write(int64_t begin, int64_t end, StateWriter& out) const {
  std::vector<float> vector(static_cast<std::size_t>(floats_));
  for (int64_t at = begin; at < end; ++at) {
    for (int64_t head = 0; head < n_heads_; ++head) {
      const float* const from = blocks_[at / kTogether] + head * floats_ * kTogether + at % kTogether;
      for (int64_t m = 0; m < floats_; ++m) vector[static_cast<std::size_t>(m)] = from[m * kTogether];
      out.Floats(vector);
    }
  }
}

void ScoredVectors::Read(StateReader& in, int64_t begin, int64_t end) {
  if (!in.Has(end - begin, n_heads_ * floats_ * static_cast<int64_t>(sizeof(float)))) return;
  Resize(end);
  std::vector<float> vector(static_cast<std::size_t>(floats_));
  for (int64_t at = begin; at < end; ++at) {
    Place place = PlaceOf(at);
    for (int64_t head = 0; head < n_heads_; ++head) {
      in.Floats(vector);
      place.Set(head, vector);
    }
  }
}

}  // namespace longheads
