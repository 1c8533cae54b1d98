// Runs plans: rotates queries, multiplies them with stored keys, softmax, values, merges. It knows pages,
// segments and rotations, and no method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/plan.h"
#include "base/cancel.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"

namespace longheads {

struct HeadShape {
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t group() const { return n_heads / n_kv_heads; }
};

// What was met since the executor was made.
struct AttentionCounts {
  double pairs = 0;          // in prompts: of a query head's row and a key that it saw
  double pairs_in_bf16 = 0;  // those of them by products of bfloat16
  double keys_read = 0;      // by generated tokens: keys with their values, once for the rows that share them

  // Adds `times` others.
  void Add(const AttentionCounts& others, double times = 1) {
    pairs += times * others.pairs;
    pairs_in_bf16 += times * others.pairs_in_bf16;
    keys_read += times * others.keys_read;
  }
};

class AttentionExecutor {
 public:
  // Pages that a prompt's queries meet in one go, where the kernels can: they are rotated once for them and
  // the result is merged once, and keys and values of 512 KiB (head_dim 64) stay in the second cache for the
  // next rows. A thread holds so many at a time.
  static constexpr int64_t kPagesTogether = 8;

  AttentionExecutor(const AttentionKernels& kernels, const HeadShape& shape, int n_threads);
  ~AttentionExecutor();

  const AttentionKernels& kernels() const { return kernels_; }
  const HeadShape& shape() const { return shape_; }

  // Prefill, chunk-major: every segment's keys meet all rows that chose them as one dense product. Runs on
  // the calling thread, `thread` in [0, n_threads), and writes the block's out rows (heads of this KV head
  // alone). Stops early, with out undefined, once `cancel` is raised.
  void RunBlock(const QueryBlock& block, const Plan& plan, const KeyPlane& plane, int thread,
                const CancelToken* cancel);

  // Makes the plan of blocks[block] and gives it, on one of the pool's threads; it stays until RunFew is
  // done.
  using PlanMaker = std::function<const Plan&(std::size_t block, int thread)>;

  // Decode, query-major: few rows, many segments. The pool's threads, at most n_threads, make the blocks'
  // plans and share out the segments of those that are there, while others are still made; pages that are not
  // in memory, all of one store, are read as they come. Who made the last plan calls on_last_plan. Partial
  // states are merged in each plan's order. Differs from RunBlock in the order of summation inside a page.
  void RunFew(std::span<const QueryBlock> blocks, const KeyPlane& plane, ThreadPool& pool,
              const PlanMaker& make_plan, const std::function<void()>& on_last_plan);

  // While nothing runs.
  AttentionCounts counts() const;

  // Says which pages the block's plan will read, where they may be elsewhere than in memory. With `remember`,
  // which is one thread's at a time for a layer and head, the store expects the same of the next token
  // (KvSequence::Expect).
  void ReadAhead(const QueryBlock& block, const Plan& plan, int thread, bool remember);
  // The plan is of a prompt's newest tokens: KvSequence::KeepForToken of what they read.
  void KeepForToken(const QueryBlock& block, const Plan& plan, int thread);

  // mass[g * stride + key - key_begin] += the probability that the segment's rows of the group's g-th head
  // give each of its keys, a run. Goes with a plan that has run: tokens carry `softmax`. A single token's
  // rows are multiplied as RunFew does, others as RunBlock. Stops early once `cancel` is raised.
  void ColumnMass(const QueryBlock& block, const Plan& plan, const PlanSegment& segment,
                  const KeyPlane& plane, int thread, const CancelToken* cancel, float* mass, int64_t stride);

 private:
  struct Scratch;
  class Run;
  class Few;

  HeadShape shape_;
  const AttentionKernels& kernels_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
  std::unique_ptr<Few> few_;
};

}  // namespace longheads
