#include "kernels/ref/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/vector_ops.h"

namespace longheads::ref {
namespace {

void Rotate(const float* q, int64_t x, const RotationTable& table, float scale, float* out) {
  const int64_t d = table.head_dim();
  for (int64_t m = 0; m < d; ++m) {
    const float c = table.high_cos(x)[m] * table.low_cos(x)[m] - table.high_sin(x)[m] * table.low_sin(x)[m];
    const float s = table.high_sin(x)[m] * table.low_cos(x)[m] + table.high_cos(x)[m] * table.low_sin(x)[m];
    out[m] = (q[m] * c + q[table.partner(m)] * s) * scale;
  }
}

void Merge(float* a, const float* b, int64_t d) {
  const float max_b = b[d];
  if (b[d + 1] == 0) return;
  const float max = std::max(a[d], max_b);
  const float scale_a = std::exp(a[d] - max);  // exp(-inf) = 0: the empty state
  const float scale_b = std::exp(max_b - max);
  for (int64_t m = 0; m < d; ++m) a[m] = a[m] * scale_a + b[m] * scale_b;
  a[d] = max;
  a[d + 1] = a[d + 1] * scale_a + b[d + 1] * scale_b;
}

// logits[j] of the keys that the row sees; the largest of them.
float Logits(const RotatedRow& row, const KeyRun& run, const RotationTable& table, std::vector<float>& q,
             std::vector<float>& logits) {
  const int64_t d = run.head_dim;
  Rotate(row.q, row.x, table, row.scale, q.data());
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t j = row.key_begin; j < row.key_end; ++j) {
    float sum = 0;
    for (int64_t m = 0; m < d; ++m) sum += q[m] * run.k[j * d + m];
    logits[j] = sum;
    max = std::max(max, sum);
  }
  return max;
}

void Attend(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table, float*) {
  const int64_t d = run.head_dim;
  std::vector<float> q(d), logits(run.n_keys), part(StateFloats(d));
  for (const RotatedRow& row : rows) {
    const float max = Logits(row, run, table, q, logits);
    ClearState(part.data(), d);
    part[d] = max;
    for (int64_t j = row.key_begin; j < row.key_end; ++j) {
      const float p = std::exp(logits[j] - max);
      part[d + 1] += p;
      for (int64_t m = 0; m < d; ++m) part[m] += p * run.v[m * run.v_stride + j];
    }
    Merge(row.state, part.data(), d);
  }
}

std::vector<float> Widened(const BFloat16* from, int64_t n) {
  std::vector<float> to(n);
  for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i].bits) << 16);
  return to;
}

void AttendBf16(std::span<const RotatedRow> rows, const Bf16KeyRun& run, const RotationTable& table,
                float* workspace) {
  const std::vector<float> k = Widened(run.k, run.n_keys * run.head_dim);
  const std::vector<float> v = Widened(run.v, (run.head_dim - 1) * run.v_stride + run.n_keys);
  Attend(rows,
         {.k = k.data(),
          .v = v.data(),
          .v_stride = run.v_stride,
          .n_keys = run.n_keys,
          .head_dim = run.head_dim},
         table, workspace);
}

void AttendQ8(std::span<const RotatedRow> rows, const Q8KeyRun& run, const RotationTable& table,
              float* workspace) {
  const int64_t d = run.head_dim;
  std::vector<float> k(run.n_keys * d), v(d * run.n_keys);
  for (int64_t j = 0; j < run.n_keys; ++j) {
    for (int64_t m = 0; m < d; ++m) {
      k[j * d + m] = static_cast<float>(run.k[j * d + m]) * run.k_scale[j];
      v[m * run.n_keys + j] = static_cast<float>(run.v[m * run.v_stride + j]) * run.v_scale[j];
    }
  }
  Attend(rows, {.k = k.data(), .v = v.data(), .v_stride = run.n_keys, .n_keys = run.n_keys, .head_dim = d},
         table, workspace);
}

void AttendPacked(std::span<const RotatedRow> rows, const PackedKeyRun& run, const RotationTable& table,
                  float* workspace) {
  std::vector<BFloat16> page(static_cast<std::size_t>(2 * kMaxRun * run.head_dim));
  kVectorOps.unpack_bf16(run.page, run.head_dim, page.data());
  AttendBf16(rows,
             {.k = page.data(),
              .v = page.data() + kMaxRun * run.head_dim,
              .v_stride = kMaxRun,
              .n_keys = run.n_keys,
              .head_dim = run.head_dim},
             table, workspace);
}

void ColumnMass(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table, float* mass,
                float*) {
  std::vector<float> q(run.head_dim), logits(run.n_keys);
  for (const RotatedRow& row : rows) {
    Logits(row, run, table, q, logits);
    for (int64_t j = row.key_begin; j < row.key_end; ++j) {
      mass[j] += std::exp(logits[j] - row.state[0]) / row.state[1];
    }
  }
}

void ColumnMassFew(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                   float* masses, float* workspace) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ColumnMass(rows.subspan(r, 1), run, table, masses + static_cast<int64_t>(r) * kMaxRun, workspace);
  }
}

void ColumnMassFewBf16(std::span<const RotatedRow> rows, const Bf16KeyRun& run, const RotationTable& table,
                       float* masses, float* workspace) {
  const std::vector<float> k = Widened(run.k, run.n_keys * run.head_dim);
  ColumnMassFew(rows,
                {.k = k.data(), .v = nullptr, .v_stride = 0, .n_keys = run.n_keys, .head_dim = run.head_dim},
                table, masses, workspace);
}

void RotateKey(const float* in, int64_t x, const RotationTable& table, float* out) {
  Rotate(in, x, table, 1, out);
}

void Scores(std::span<const float* const> q, const float* vectors, int64_t n, int64_t d, float* scores,
            int64_t stride, float*) {
  for (std::size_t row = 0; row < q.size(); ++row) {
    for (int64_t c = 0; c < n; ++c) {
      float sum = 0;
      for (int64_t m = 0; m < d; ++m) sum += q[row][m] * vectors[c * d + m];
      scores[static_cast<int64_t>(row) * stride + c] = sum;
    }
  }
}

void ScoresOfColumns(std::span<const float* const> q, const float* columns, int64_t begin, int64_t end,
                     int64_t d, float* scores, int64_t stride, float*) {
  for (std::size_t row = 0; row < q.size(); ++row) {
    for (int64_t c = begin; c < end; ++c) {
      float sum = 0;
      for (int64_t m = 0; m < d; ++m) sum += q[row][m] * columns[m * kScoredTogether + c];
      scores[static_cast<int64_t>(row) * stride + c - begin] = sum;
    }
  }
}

}  // namespace

const AttentionKernels kAttention = {.row_tile = 1,
                                     .attend = Attend,
                                     .attend_bf16 = nullptr,
                                     .attend_few = Attend,
                                     .attend_few_bf16 = AttendBf16,
                                     .attend_few_packed = AttendPacked,
                                     .attend_few_q8 = AttendQ8,
                                     .column_mass = ColumnMass,
                                     .column_mass_few = ColumnMassFew,
                                     .column_mass_few_bf16 = ColumnMassFewBf16,
                                     .scores = Scores,
                                     .scores_of_columns = ScoresOfColumns,
                                     .rotate = RotateKey,
                                     .merge = Merge};

}  // namespace longheads::ref
