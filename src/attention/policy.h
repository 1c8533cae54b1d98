// An attention method proper: decides, for a layer, which keys each query sees and at which distance. One
// policy serves any number of sequences and threads; what it remembers of one sequence lies in a PolicyState.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "attention/executor.h"
#include "attention/plan.h"

namespace longheads {

// Prompt tokens and generated tokens: some definitions differ between them.
enum class Phase : uint8_t { kPrefill, kDecode };

// One layer's memory of one sequence beside its keys and values.
class PolicyState {
 public:
  virtual ~PolicyState() = default;
  virtual std::unique_ptr<PolicyState> Fork() const = 0;
  // The most tokens m <= n that Truncate can go back to exactly; the engine feeds tokens [m, n) again. Every
  // state can take back its newest token, so that a decode step which failed in a later layer is undone.
  virtual int64_t RewindPoint(int64_t n) const = 0;
  // Forgets tokens from m on; m was a RewindPoint.
  virtual void Truncate(int64_t m) = 0;
  // Bytes held, for the memory plan's check.
  virtual uint64_t Bytes() const = 0;
};

// Reused between calls, so that a decode step allocates nothing.
struct PolicyScratch {
  virtual ~PolicyScratch() = default;
};

// New tokens of one sequence, whose keys and values are in the store already.
struct ExtendInput {
  int64_t layer = 0;
  const KvSequence* sequence = nullptr;
  int64_t token_begin = 0;
  int64_t n_tokens = 0;
  const float* q = nullptr;  // [n_tokens, n_heads, head_dim], unrotated
  AttentionExecutor* executor = nullptr;
  const RotationTable* rotations = nullptr;
  float scale = 1;
  ThreadPool* pool = nullptr;
  const CancelToken* cancel = nullptr;
};

class Policy {
 public:
  virtual ~Policy() = default;

  // The rotation that the stored key of token j carries: R(KeyPosition(j)) k. (Its plane: absolute is j.)
  virtual int64_t KeyPosition(int64_t j) const = 0;
  // Rotations in a plan over n tokens are below this.
  virtual int64_t RotationBound(int64_t n) const = 0;

  virtual std::unique_ptr<PolicyState> NewState() const = 0;
  virtual std::unique_ptr<PolicyScratch> NewScratch() const = 0;

  // Takes new tokens into the state. Called from one thread, which may run loops on the pool. Where
  // input.cancel is raised before it is done the state may still be that of the tokens before.
  virtual void Extend(const ExtendInput& input, PolicyState& state) const = 0;

  // The plan of one KV head's block of queries; states[s] belongs to block.sequences[s] and knows every token
  // up to the block's last. Called from several threads at once, each with a scratch of its own.
  virtual void BuildPlan(const QueryBlock& block, Phase phase, std::span<const PolicyState* const> states,
                         const AttentionKernels& kernels, PolicyScratch& scratch, Plan& plan) const = 0;

  // One line for the user where n tokens are more than the method, or the model, does well; empty else.
  virtual std::string Warning(int64_t n_tokens) const = 0;
  // One line that says what happens at which length ("LongHeads selects from token 8192 on ...").
  virtual std::string Explain() const = 0;

  // Bytes of state for n tokens of one layer, for the memory plan.
  virtual uint64_t StateBytes(int64_t n) const = 0;
};

}  // namespace longheads
