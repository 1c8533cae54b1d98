// What a policy returns: which keys each query row sees, and at which distance. The executor runs a plan
// without knowing which method made it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace longheads {

// One token whose queries attend, somewhere in a batch.
struct QueryToken {
  int32_t sequence;  // index into the batch's sequences
  int64_t position;  // absolute index i of the token in its sequence
  const float* q;    // [n_heads, head_dim], unrotated
  float* out;        // [n_heads, head_dim]
};

// A query row r of a block: token r / group, query head kv_head * group + r % group.
// R(x) is the rotation that puts the row at the right distance from the segment's keys, given the plane on
// which they are stored: x = distance + stored rotation (methods: query-only rotation).
struct PlanRow {
  int32_t row;
  int32_t x;
};

// A run of keys of one sequence and the rows that see it. A row at position i sees key j of the run where
// min_distance <= i - j < max_distance.
struct PlanSegment {
  int32_t sequence = 0;
  int64_t key_begin = 0;
  int64_t key_end = 0;
  int64_t row_begin = 0;  // plan.rows[row_begin, row_end)
  int64_t row_end = 0;
  int64_t min_distance = 0;  // causal
  int64_t max_distance = kAnyDistance;

  static constexpr int64_t kAnyDistance = std::numeric_limits<int64_t>::max() / 2;
};

// Segments of one sequence are in ascending order of key_begin: parts merge in that order, whatever the
// blocks.
struct Plan {
  std::vector<PlanSegment> segments;
  std::vector<PlanRow> rows;

  void Clear() {
    segments.clear();
    rows.clear();
  }
};

}  // namespace longheads
