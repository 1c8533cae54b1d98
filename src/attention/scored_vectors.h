// Vectors of a policy's state that stand for blocks of the text, of one or more heads, and the scores of
// queries against them. Those of a head lie as columns, kTogether side by side, so that no score needs them
// turned: a generated token's queries are too few to pay for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/shared_blocks.h"
#include "base/check.h"
#include "kernels/attention.h"

namespace longheads {

class StateReader;
class StateWriter;

class ScoredVectors {
 public:
  static constexpr int64_t kTogether = kScoredTogether;

  ScoredVectors(int64_t n_heads, int64_t floats);

  uint64_t Bytes() const { return blocks_.Bytes(); }
  // The same for n vectors of each head.
  static uint64_t BytesFor(int64_t n, int64_t n_heads, int64_t floats);

  // Room for vectors [0, n) of each head; those from there on go.
  void Resize(int64_t n) { blocks_.Resize(BlocksFor(n)); }

  // The at-th vector of every head, for writing.
  class Place {
   public:
    void Set(int64_t head, std::span<const float> vector) {
      LH_CHECK(static_cast<int64_t>(vector.size()) == floats_);
      float* const to = first_ + head * floats_ * kTogether;
      for (std::size_t m = 0; m < vector.size(); ++m) to[static_cast<int64_t>(m) * kTogether] = vector[m];
    }

   private:
    friend class ScoredVectors;
    Place(float* first, int64_t floats) : first_(first), floats_(floats) {}

    float* first_;  // number 0 of head 0
    int64_t floats_;
  };
  // By now this owner's alone. Not thread-safe; the place may be written from any thread.
  Place PlaceOf(int64_t at) { return Place(blocks_.Mutable(at / kTogether) + at % kTogether, floats_); }

  // scores[row * stride + v - begin] = queries[row] . vector v of a head, for vectors [begin, end).
  // workspace: AttendWorkspace(row_tile, floats).
  void Score(std::span<const float* const> queries, int64_t head, int64_t begin, int64_t end,
             const AttentionKernels& kernels, float* workspace, float* scores, int64_t stride) const;

  // Asks for the beginning of a head's block of vectors, which begins at `at`, a multiple of kTogether:
  // within one, kernels ask for what they read next, but not for the next block, which lies elsewhere.
  void Fetch(int64_t head, int64_t at) const;

  // Vectors [begin, end), one after the other, of all heads each.
  void Write(int64_t begin, int64_t end, StateWriter& out) const;
  // [begin, end) as written, of which [0, begin) are there; later ones go.
  void Read(StateReader& in, int64_t begin, int64_t end);

 private:
  static int64_t BlocksFor(int64_t n) { return (n + kTogether - 1) / kTogether; }

  int64_t n_heads_;
  int64_t floats_;
  SharedBlocks blocks_;  // [n_heads, floats, kTogether] each
};

}  // namespace longheads
