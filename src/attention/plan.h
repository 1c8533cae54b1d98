// What a policy returns: which keys each query row sees, and at which distance. The executor runs a plan
// without knowing which method made it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/rotation_table.h"
#include "kv/sequence.h"

namespace longheads {

class NearKeys;
class PolicyState;
class SelectionObserver;

// The plane of stored keys: key j carries the rotation R(Position(j)), in units of 1 / `unit` of a token.
struct KeyPlane {
  static constexpr int64_t kNoPeriod = std::numeric_limits<int64_t>::max();

  int64_t factor = 1;          // 0: keys are stored unrotated
  int64_t period = kNoPeriod;  // of chunk-local planes
  int64_t group = 1;           // tokens that share a rotation
  int64_t unit = 1;            // rotations are in 1 / unit: the layer's frequencies are divided by it

  static KeyPlane Absolute() { return {}; }
  static KeyPlane Unrotated() { return {.factor = 0}; }
  static KeyPlane ChunkLocal(int64_t chunk) { return {.period = chunk}; }

  int64_t Position(int64_t j) const { return factor * (j % period / group); }
  // Where key j would lie on the absolute plane.
  int64_t AbsolutePosition(int64_t j) const { return unit * j; }
};

// One sequence of a batch, in one layer.
struct AttentionSequence {
  const KvSequence* kv = nullptr;
  const PolicyState* state = nullptr;
  const PolicyState* first_state = nullptr;  // the same sequence's in the first layer
  const RotationTable* rotations = nullptr;
  float scale = 1;              // of logits: amplitude^2 / sqrt(head_dim)
  float amplitude = 1;          // of rotated queries and of rotated keys
  bool keys_unrotated = false;  // in the store, whatever the plane: they are turned to it as they are read
  // Its newest keys on the absolute plane, for segments on it; null: these keys are turned as they are read.
  const NearKeys* near = nullptr;
  // The model's call that feeds it: tokens [call_begin, call_end) are one prompt, whatever the blocks it
  // comes in, or one decoded token.
  int64_t call_begin = 0;
  int64_t call_end = 0;
};

// One token whose queries attend, somewhere in a batch.
struct QueryToken {
  int32_t sequence;  // index into the batch's sequences
  int64_t position;  // absolute index i of the token in its sequence
  const float* q;    // [n_heads, head_dim], unrotated
  float* out;        // [n_heads, head_dim], from the block's first_out_head on
  // [n_heads, 2]: each row's largest logit and sum of exponentials, in the kernels' own units; null where the
  // policy does not ask.
  float* softmax = nullptr;
};

// Queries of one layer and KV head.
struct QueryBlock {
  int64_t layer = 0;
  int64_t kv_head = 0;
  int64_t first_out_head = 0;  // the query head whose output lies at a token's `out`
  std::span<const QueryToken> tokens;
  std::span<const AttentionSequence> sequences;
  SelectionObserver* observer = nullptr;  // hears of choices made in BuildPlan; null: nobody does

  // One past the last of the tokens from `begin` on that follow each other in one sequence.
  int64_t RunEnd(int64_t begin) const {
    std::size_t end = static_cast<std::size_t>(begin);
    const int32_t sequence = tokens[end].sequence;
    while (end < tokens.size() && tokens[end].sequence == sequence) ++end;
    return static_cast<int64_t>(end);
  }
};

// A query row r of a block: token r / group, query head kv_head * group + r % group.
// R(x) is the rotation that puts the row at the right distance from the segment's keys, given the plane on
// which they are read: x = distance + the keys' rotation (methods: query-only rotation).
struct PlanRow {
  int32_t row;
  int32_t x;
};

// Keys of one sequence and the rows that see them.
struct PlanSegment {
  int32_t sequence = 0;
  int64_t key_begin = 0;  // a run of keys, or plan.keys[key_begin, key_end)
  int64_t key_end = 0;
  int64_t row_begin = 0;  // plan.rows[row_begin, row_end)
  int64_t row_end = 0;
  // A row at position i sees key j of a run where min_distance <= i - j < max_distance; of a list it sees
  // all.
  int64_t min_distance = 0;  // causal
  int64_t max_distance = kAnyDistance;
  bool listed = false;    // the keys are a list
  bool absolute = false;  // keys are met on the absolute plane, whatever the stored one
  // Where it is a key: the segment's part, normalised, enters the merge as if it were that one key's value,
  // with that key's logit (Landmark's grouped softmax). The key is read on the stored plane.
  int64_t as_key = kNoKey;

  static constexpr int64_t kAnyDistance = std::numeric_limits<int64_t>::max() / 2;
  static constexpr int64_t kNoKey = -1;
};

// Keys that no row of the plan sees, and that the next token may well: the ones that were nearly chosen.
struct PlanHint {
  int32_t sequence = 0;
  int64_t key_begin = 0;
  int64_t key_end = 0;
};

// Parts merge in the order of the segments: for each row it must be the same whatever the blocks.
struct Plan {
  std::vector<PlanSegment> segments;
  std::vector<PlanRow> rows;
  std::vector<int32_t> keys;        // of listed segments
  std::vector<float> token_scales;  // [the block's tokens] factors of the logits; empty: all 1
  std::vector<PlanHint> hints;      // for a decode step of a sequence whose pages may be on disk

  void Clear() {
    hints.clear();
    segments.clear();
    rows.clear();
    keys.clear();
    token_scales.clear();
  }
};

}  // namespace longheads
