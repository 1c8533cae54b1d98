// One layer's attention, whichever the method: stores keys and values, lets the policy learn, plan and
// observe, and runs its plans. The model brings projections and takes outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/executor.h"
#include "attention/near_keys.h"
#include "attention/policy.h"
#include "base/cancel.h"
#include "base/thread_pool.h"
#include "kernels/vector_ops.h"

namespace longheads {

// A sequence whose next tokens attend; its store has room for them.
struct AttendingSequence {
  KvSequence* kv = nullptr;
  PolicyState* state = nullptr;
  const PolicyState* first_state = nullptr;  // of the first layer
  const RotationTable* rotations = nullptr;
  float scale = 1;  // of logits, and its amplitude, as in AttentionSequence
  float amplitude = 1;
  bool keys_unrotated = false;  // as in AttentionSequence
  NearKeys* near = nullptr;     // for policies with NearTokens, where rotations do not follow the length
  // Tokens of the same prompt that came in earlier calls of Prefill, and that come in later ones.
  int64_t n_preceding = 0;
  int64_t n_following = 0;
};

// Rows of new tokens in one layer.
struct AttentionRows {
  int64_t layer = 0;
  const float* q = nullptr;  // [n_tokens, n_heads, head_dim], unrotated
  float* k = nullptr;        // [n_tokens, n_kv_heads, head_dim], unrotated; rotated in place
  const float* v = nullptr;  // [n_tokens, n_kv_heads, head_dim]
  float* out = nullptr;      // [n_tokens, n_heads, head_dim]
};

class AttentionRunner {
 public:
  // The pool must outlive the runner.
  AttentionRunner(const AttentionKernels& attention, const VectorKernels& vector, const HeadShape& shape,
                  ThreadPool& pool);
  ~AttentionRunner();

  // The next n tokens of one sequence, which holds kv->size() of them. They are not committed: that is the
  // caller's once all layers have them. Whether it got to the end: not where `cancel` was raised.
  bool Prefill(const Policy& policy, const AttendingSequence& sequence, const AttentionRows& rows, int64_t n,
               const CancelToken* cancel);

  // The next token of each sequence; row i is the i-th sequence's. Allocates nothing once it has run with as
  // many sequences and as large plans, but for a page of near keys where a text grows into one.
  void Decode(const Policy& policy, std::span<const AttendingSequence> sequences, const AttentionRows& rows);

  AttentionCounts counts() const { return executor_.counts(); }

  // Drops what is kept of policies. Call before one of them goes.
  void Forget() { work_.clear(); }

  // Hears of choices, and of every plan before it runs; null: nobody does.
  SelectionObserver* observer = nullptr;

  // Tokens whose queries of one KV head a thread takes at a time; for tests.
  int64_t max_query_block = Policy::kNoLimit;

 private:
  struct PolicyWork {
    const Policy* policy;
    std::vector<std::unique_ptr<PolicyScratch>> scratch;  // per thread
  };

  PolicyWork& WorkOf(const Policy& policy);
  void Store(const Policy& policy, const AttendingSequence& sequence, const AttentionRows& rows,
             int64_t row_begin, int64_t n);
  // Those rows' keys, and the ones near them, on the absolute plane.
  void BringNear(const Policy& policy, const AttendingSequence& sequence, int64_t layer, int64_t row_begin,
                 int64_t n);
  int64_t EvenBlocks(int64_t n, int64_t most) const;
  bool PrefillStep(const Policy& policy, const AttentionSequence& view, PolicyState& state,
                   const AttentionRows& rows, int64_t row_begin, int64_t n, const CancelToken* cancel);
  // Tokens [position, position + n) of the index-th sequence, whose rows begin at `row`.
  StepInput Step(const Policy& policy, Phase phase, const AttentionSequence& view, int64_t index,
                 const AttentionRows& rows, int64_t row, int64_t position, int64_t n);

  const VectorKernels& vector_;
  HeadShape shape_;
  ThreadPool& pool_;
  AttentionExecutor executor_;
  std::vector<PolicyWork> work_;
  std::vector<QueryToken> tokens_;
  std::vector<AttentionSequence> views_;
  std::vector<QueryBlock> blocks_;  // of a decode step: per KV head
  std::vector<Plan> plans_;         // prefill: per thread; decode: per KV head
  std::vector<float> softmax_;      // [n_tokens, n_heads, 2] where the policy observes
};

}  // namespace longheads
