// Policy state of one vector for each complete block of tokens and KV head, made from the block's stored keys
// (MoBA's means, Quest's bounds, Landmark's keys), and the scores of queries against them. Since the keys
// stay in the store, it goes back to any token exactly. What the vector is, and what is chosen by its scores,
// is the policy's business.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "attention/policy.h"
#include "attention/scored_vectors.h"
#include "attention/stored_keys.h"

namespace longheads {

class BlockVectors : public PolicyState {
 public:
  // Blocks of `tokens` tokens; vectors of `floats`.
  BlockVectors(int64_t tokens, int64_t n_kv_heads, int64_t floats);

  std::unique_ptr<PolicyState> Fork() const override { return std::make_unique<BlockVectors>(*this); }
  void Truncate(int64_t m) override;
  uint64_t Bytes() const override { return vectors_.Bytes(); }
  std::string Layout() const override;
  void Save(int64_t from, int64_t n, StateWriter& added, StateWriter& latest) const override;
  void RestoreAdded(int64_t from, int64_t n, StateReader& added) override;
  void RestoreLatest(int64_t n, StateReader& latest) override;
  // The same for a text of n tokens.
  static uint64_t BytesFor(int64_t n, int64_t tokens, int64_t n_kv_heads, int64_t floats);
  // Of these, those of the last block of vectors (Policy::LastBlockBytes).
  static uint64_t LastBlockBytesFor(int64_t n, int64_t tokens, int64_t n_kv_heads, int64_t floats);

  // The vector of the block that keys [begin, end) are.
  using Make = void (*)(StoredKeys& keys, int64_t begin, int64_t end, int64_t head_dim, float* vector);
  // Takes in new tokens, for Policy::Extend.
  void Extend(const StepInput& input, Make make);

  // scores[row * stride + b - begin] = queries[row] . the vector of block b, for the complete blocks
  // [begin, end). workspace: AttendWorkspace(row_tile, floats).
  void Score(std::span<const float* const> queries, int64_t kv_head, int64_t begin, int64_t end,
             const AttentionKernels& kernels, float* workspace, float* scores, int64_t stride) const;

 private:
  int64_t tokens_;
  int64_t n_kv_heads_;
  int64_t floats_;
  int64_t n_tokens_ = 0;
  ScoredVectors vectors_;
};

}  // namespace longheads
