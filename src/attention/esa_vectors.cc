#include "attention/esa_vectors.h"

#include <algorithm>

#include "base/check.h"

namespace longheads {

void RotateEsaQueries(const StepInput& input, int64_t distance, bool fold, float* out) {
  const AttentionKernels& kernels = input.executor->kernels();
  const HeadShape& shape = input.executor->shape();
  const RotationTable& rotations = *input.sequence->rotations;
  const int64_t d = shape.head_dim;
  const int64_t group = fold ? shape.group() : 1;
  const int64_t n_vectors = shape.n_heads / group;
  LH_CHECK(d <= kMaxHeadDim);
  input.pool->Run((input.n_tokens + kEsaTile - 1) / kEsaTile, [&](int64_t task, int) {
    const int64_t end = std::min(input.n_tokens, (task + 1) * kEsaTile) * n_vectors;
    for (int64_t at = task * kEsaTile * n_vectors; at < end; ++at) {
      // The sum over heads of q.k is that of the KV heads' summed queries with k.
      const float* const heads = input.q + at * group * d;
      float sum[kMaxHeadDim];
      std::copy_n(heads, d, sum);
      for (int64_t g = 1; g < group; ++g) {
        for (int64_t m = 0; m < d; ++m) sum[m] += heads[g * d + m];
      }
      kernels.rotate(sum, distance, rotations, out + at * d);
    }
  });
}

void CopyEsaKeys(const StepInput& input, int64_t begin, int64_t end, float* out) {
  const HeadShape& shape = input.executor->shape();
  for (int64_t head = 0; head < shape.n_kv_heads; ++head) {
    input.sequence->kv->CopyKeys(input.layer, head, begin, end - begin, out + head * shape.head_dim,
                                 shape.n_kv_heads * shape.head_dim);
  }
}

void ProjectEsaRows(const float* rows, int64_t n_rows, const std::vector<float>& matrix, int64_t n_columns,
                    int64_t n_out, const AttentionKernels& kernels, Buffer<float>& workspace, float* out) {
  LH_CHECK(n_rows <= kEsaTile && n_out * n_columns <= static_cast<int64_t>(matrix.size()));
  workspace.Reserve(AttendWorkspace(kernels.row_tile, n_columns));
  const float* pointers[kEsaTile];
  for (int64_t row = 0; row < n_rows; ++row) pointers[row] = rows + row * n_columns;
  kernels.scores({pointers, static_cast<std::size_t>(n_rows)}, matrix.data(), n_out, n_columns, out, n_out,
                 workspace.data());
}

}  // namespace longheads
