// Runs plans: rotates queries, multiplies them with stored keys, softmax, values, merges. It knows pages,
// segments and rotations, and no method.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/plan.h"
#include "base/cancel.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kv/sequence.h"

namespace longheads {

// Queries of one layer and KV head.
struct QueryBlock {
  int64_t layer = 0;
  int64_t kv_head = 0;
  std::span<const QueryToken> tokens;
  std::span<const KvSequence* const> sequences;
};

struct HeadShape {
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t group() const { return n_heads / n_kv_heads; }
};

class AttentionExecutor {
 public:
  AttentionExecutor(const AttentionKernels& kernels, const HeadShape& shape, int n_threads);
  ~AttentionExecutor();

  const AttentionKernels& kernels() const { return kernels_; }
  const HeadShape& shape() const { return shape_; }

  // Prefill, chunk-major: every segment's keys meet all rows that chose them as one dense product. Runs on
  // the calling thread, `thread` in [0, n_threads), and writes the block's out rows (heads of this KV head
  // alone). Stops early, with out undefined, once `cancel` is raised.
  void RunBlock(const QueryBlock& block, const Plan& plan, const RotationTable& rotations, float scale,
                int thread, const CancelToken* cancel);

  // Decode, query-major: few rows, many segments; the segments of all blocks are shared out over the pool and
  // their partial states merged in ascending order. Differs from RunBlock in the order of summation inside a
  // page.
  void RunFew(std::span<const QueryBlock> blocks, std::span<const Plan> plans, const RotationTable& rotations,
              float scale, ThreadPool& pool);

 private:
  struct Scratch;
  struct FewItem;

  HeadShape shape_;
  const AttentionKernels& kernels_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
  std::vector<FewItem> items_;
  std::vector<float> states_;
};

}  // namespace longheads
