// The newest keys of one sequence in one layer on the absolute plane, for methods that store keys on another
// one and see near ones at their true distance (methods with two planes: Self-Extend, ReRoPE, LM-Infinite,
// InfLLM, ESA). A ring of pages without values; which keys a query sees is the plan's business.
//
// A key is turned once, from what the store holds of it, and kept in bfloat16, or in float32 where the store
// is: bit by bit the same whenever it is made. So rings are neither saved nor forked.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/policy.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/vector_ops.h"
#include "kv/sequence.h"
#include "tensor/tensor.h"

namespace longheads {

class NearKeys {
 public:
  // Tokens whose queries attend at a time where a method does not say (Policy::StepTokens): their keys must
  // all be here.
  static constexpr int64_t kStepTokens = 2048;

  // As a policy wants it; null where it wants none. `conversions` must outlive it.
  static std::unique_ptr<NearKeys> For(const Policy& policy, const KvGeometry& geometry,
                                       const VectorKernels& conversions);
  // What that holds once the sequence has n tokens.
  static uint64_t BytesFor(const Policy& policy, const KvGeometry& geometry, int64_t n);

  // For `window` tokens before a step of so many.
  NearKeys(const KvGeometry& geometry, int64_t window, int64_t step, const VectorKernels& conversions);
  // What it holds now.
  uint64_t Bytes() const;
  // An empty one of the same sizes.
  std::unique_ptr<NearKeys> Fresh() const;

  // Sees to it that the keys of tokens [window before step_begin, step_end) are here; the store has them, and
  // those from step_begin on are new. Throws std::bad_alloc, or PageError where a page does not come.
  void Bring(const KvSequence& kv, int64_t layer, int64_t step_begin, int64_t step_end, const KeyPlane& plane,
             const RotationTable& rotations, const AttentionKernels& kernels, ThreadPool& pool);

  // Keys of a page that Bring saw to, [kPageTokens, head_dim] as far as it did.
  const BFloat16* InBf16(int64_t kv_head, int64_t page) const {
    return Brought(page).bf16.data() + kv_head * page_numbers();
  }
  // In float32, where they are kept so, else in `scratch`.
  const float* InFloat32(int64_t kv_head, int64_t page, float* scratch) const;
  int64_t step() const { return step_; }
  bool in_bf16() const { return geometry_.type != KvType::kF32; }

 private:
  struct Slot {
    int64_t page = -1;
    int64_t n_tokens = 0;
    Buffer<BFloat16> bf16;  // [n_kv_heads, kPageTokens, head_dim], one of the two
    Buffer<float> floats;
  };

  int64_t page_numbers() const { return kPageTokens * geometry_.head_dim; }
  Slot& SlotOf(int64_t page) { return slots_[static_cast<std::size_t>(page) % slots_.size()]; }
  const Slot& Brought(int64_t page) const;
  void SendFor(const KvSequence& kv, int64_t layer, int64_t first_page, int64_t n_pages);
  // The keys up to `to` that a page lacks of one head.
  void Turn(const KvSequence& kv, int64_t layer, int64_t kv_head, int64_t page, int64_t to,
            const KeyPlane& plane, const RotationTable& rotations, const AttentionKernels& kernels);

  KvGeometry geometry_;
  int64_t window_;
  int64_t step_;
  const VectorKernels& conversions_;
  std::vector<Slot> slots_;
  std::vector<int64_t> missing_;  // pages, of a step
};

}  // namespace longheads
