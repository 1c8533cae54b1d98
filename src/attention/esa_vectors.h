// The vectors by which ESA scores: of a token's queries and of its keys. Who sums, compresses or compares
// them is another's business.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/policy.h"

namespace longheads {

// Tokens that one task of a parallel loop takes; pages are whole numbers of them.
inline constexpr int64_t kEsaTile = 32;

// The step's queries as they meet keys at `distance`: folded, [n_tokens, n_kv_heads, head_dim], each KV
// head's vector the sum of the queries that share it; or of every head, [n_tokens, n_heads, head_dim].
void RotateEsaQueries(const StepInput& input, int64_t distance, bool fold, float* out);

// Keys of tokens [begin, end) as the store has them, all KV heads of a token side by side:
// [end - begin, n_kv_heads * head_dim].
void CopyEsaKeys(const StepInput& input, int64_t begin, int64_t end, float* out);

// out[row][r] = rows[row] . matrix[r]; rows [n_rows, n_columns], at most kEsaTile of them, out [n_rows,
// n_out].
void ProjectEsaRows(const float* rows, int64_t n_rows, const std::vector<float>& matrix, int64_t n_columns,
                    int64_t n_out, const AttentionKernels& kernels, Buffer<float>& workspace, float* out);

}  // namespace longheads
