// kernels/attention.h in Highway: one source for AVX2 and AVX-512.
//
// Lanes are query rows. A tile of 2 vectors of rows is packed transposed, so that every key element is
// broadcast against all rows at once: no horizontal sums, and a row's arithmetic does not feel its tile
// mates. K row-major and V transposed are read along the direction of the broadcast.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target, as Highway asks.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/attention.h"
#include "kernels/cpu/few_rows-inl.h"
#include "kernels/cpu/simd_kernels.h"

// Nothing for the scalar target that Highway insists on: ref/ is below AVX2.
#if HWY_TARGET != HWY_STATIC_TARGET
HWY_BEFORE_NAMESPACE();
namespace longheads::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTile = 2 * kLanes;  // rows
// Accumulators of a block: 2 vectors of rows x kBlock keys. AVX2 has 16 registers, AVX-512 has 32.
constexpr int kBlock = kLanes >= 16 ? 12 : 6;

// Logits are kept in units of ln 2, by a factor in the query's scale, so that softmax needs powers of 2
// alone.
constexpr float kLog2E = 1.44269504088896340736f;

// 2^x to a relative error of 2^-22, for x <= 0 and a little above; 0 below -126. NaN stays NaN.
HWY_INLINE Vec Exp2(Vec x) {
  const Vec whole = hn::Round(x);
  const Vec f = hn::Sub(x, whole);  // [-0.5, 0.5]
  // Taylor series of 2^f: the first term left out is below 2^-23.
  Vec p = hn::Set(kTag, 1.5403530393381609954e-4f);
  p = hn::MulAdd(p, f, hn::Set(kTag, 1.3333558146428443423e-3f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 9.6181291076284771619e-3f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 5.5504108664821579953e-2f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 2.4022650695910071233e-1f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 6.9314718055994530942e-1f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 1.0f));
  const hn::RebindToSigned<Tag> integers;
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(integers, whole));
  const Vec scaled = hn::BitCast(kTag, hn::Add(hn::BitCast(integers, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kTag, -126.0f)), scaled);
}

HWY_INLINE float Exp2(float x) { return hn::GetLane(Exp2(hn::Set(kTag, x))); }

// dst[m] for m in [0, d) = (R(x) q) * scale
HWY_INLINE void RotateRow(const float* HWY_RESTRICT q, int64_t x, const RotationTable& table, float scale,
                          float* HWY_RESTRICT dst) {
  const int64_t d = table.head_dim();
  const float* const cos_low = table.low_cos(x);
  const float* const sin_low = table.low_sin(x);
  const float* const cos_high = table.high_cos(x);
  const float* const sin_high = table.high_sin(x);
  const Vec factor = hn::Set(kTag, scale);
  const bool interleaved = table.layout() == PairLayout::kInterleaved;
  const int64_t n_pairs = table.n_pairs();
  for (int64_t m = 0; m < d; m += kLanes) {
    const Vec cl = hn::LoadU(kTag, cos_low + m);
    const Vec sl = hn::LoadU(kTag, sin_low + m);
    const Vec ch = hn::LoadU(kTag, cos_high + m);
    const Vec sh = hn::LoadU(kTag, sin_high + m);
    const Vec c = hn::NegMulAdd(sh, sl, hn::Mul(ch, cl));
    const Vec s = hn::MulAdd(ch, sl, hn::Mul(sh, cl));
    const Vec own = hn::LoadU(kTag, q + m);
    Vec partner;
    if (interleaved) {
      partner = hn::Reverse2(kTag, own);
    } else if (n_pairs % kLanes == 0) {
      partner = hn::LoadU(kTag, q + (m < n_pairs ? m + n_pairs : (m < 2 * n_pairs ? m - n_pairs : m)));
    } else {
      HWY_ALIGN float gathered[kLanes];
      for (int64_t lane = 0; lane < kLanes; ++lane) gathered[lane] = q[table.partner(m + lane)];
      partner = hn::Load(kTag, gathered);
    }
    hn::StoreU(hn::Mul(hn::MulAdd(partner, s, hn::Mul(own, c)), factor), kTag, dst + m);
  }
}

// out[c][r] = in[r][c] for r in [0, n_rows) and c in [0, n_columns), both multiples of 4.
HWY_INLINE void Transpose(const float* HWY_RESTRICT in, int64_t n_rows, int64_t n_columns, int64_t in_stride,
                          float* HWY_RESTRICT out, int64_t out_stride) {
  const hn::CappedTag<float, 4> four;
  const hn::Repartition<double, decltype(four)> pairs;
  for (int64_t r = 0; r < n_rows; r += 4) {
    for (int64_t c = 0; c < n_columns; c += 4) {
      const float* const from = in + r * in_stride + c;
      const auto row0 = hn::LoadU(four, from);
      const auto row1 = hn::LoadU(four, from + in_stride);
      const auto row2 = hn::LoadU(four, from + 2 * in_stride);
      const auto row3 = hn::LoadU(four, from + 3 * in_stride);
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(four, row0, row1));
      const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(four, row2, row3));
      const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(four, row0, row1));
      const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(four, row2, row3));
      float* const to = out + c * out_stride + r;
      hn::StoreU(hn::BitCast(four, hn::InterleaveLower(pairs, low01, low23)), four, to);
      hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(pairs, low01, low23)), four, to + out_stride);
      hn::StoreU(hn::BitCast(four, hn::InterleaveLower(pairs, high01, high23)), four, to + 2 * out_stride);
      hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(pairs, high01, high23)), four, to + 3 * out_stride);
    }
  }
}

// out[b * out_stride + r] = sum over i in [0, n) of a[b * a_stride + i] * t[i * kStride + r], for b in
// [0, kCount) and r in [0, kTile): the inner product of both halves of attention, and of scores. Summed in
// ascending i.
template <int kCount, int64_t kStride = kTile>
HWY_INLINE void BlockProduct(const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT t,
                             int64_t n, float* HWY_RESTRICT out, int64_t out_stride) {
  Vec low[kCount];
  Vec high[kCount];
  HWY_UNROLL(12)
  for (int b = 0; b < kCount; ++b) low[b] = high[b] = hn::Zero(kTag);
  for (int64_t i = 0; i < n; ++i) {
    const Vec t_low = hn::Load(kTag, t + i * kStride);
    const Vec t_high = hn::Load(kTag, t + i * kStride + kLanes);
    HWY_UNROLL(12)
    for (int b = 0; b < kCount; ++b) {
      const Vec element = hn::Set(kTag, a[b * a_stride + i]);
      low[b] = hn::MulAdd(element, t_low, low[b]);
      high[b] = hn::MulAdd(element, t_high, high[b]);
    }
  }
  HWY_UNROLL(12)
  for (int b = 0; b < kCount; ++b) {
    hn::StoreU(low[b], kTag, out + b * out_stride);
    hn::StoreU(high[b], kTag, out + b * out_stride + kLanes);
  }
}

// The same for any number of rows of a.
template <int64_t kStride = kTile>
HWY_INLINE void Product(const float* a, int64_t a_stride, int64_t n_a, const float* t, int64_t n, float* out,
                        int64_t out_stride) {
  int64_t b = 0;
  for (; b + kBlock <= n_a; b += kBlock)
    BlockProduct<kBlock, kStride>(a + b * a_stride, a_stride, t, n, out + b * out_stride, out_stride);
  for (; b + 4 <= n_a; b += 4)
    BlockProduct<4, kStride>(a + b * a_stride, a_stride, t, n, out + b * out_stride, out_stride);
  for (; b < n_a; ++b)
    BlockProduct<1, kStride>(a + b * a_stride, a_stride, t, n, out + b * out_stride, out_stride);
}

// state = state * scale_state + part * scale_part.
HWY_INLINE void MergeInto(float* HWY_RESTRICT state, int64_t d, const float* HWY_RESTRICT part,
                          float part_max, float part_sum) {
  const float max = std::max(state[d], part_max);
  const float scale_state = Exp2(state[d] - max);  // 0 for -inf: the empty state
  const float scale_part = Exp2(part_max - max);
  const Vec a = hn::Set(kTag, scale_state);
  const Vec b = hn::Set(kTag, scale_part);
  for (int64_t m = 0; m < d; m += kLanes) {
    const Vec merged = hn::MulAdd(hn::LoadU(kTag, part + m), b, hn::Mul(hn::LoadU(kTag, state + m), a));
    hn::StoreU(merged, kTag, state + m);
  }
  state[d] = max;
  state[d + 1] = state[d + 1] * scale_state + part_sum * scale_part;
}

// logits[j][kTile] become exp(logit - max) over each row's keys, 0 elsewhere.
HWY_INLINE void Softmax(std::span<const RotatedRow> rows, int64_t begin, int64_t end,
                        float* HWY_RESTRICT logits, float* HWY_RESTRICT max_out,
                        float* HWY_RESTRICT sum_out) {
  HWY_ALIGN float first[kTile];
  HWY_ALIGN float last[kTile];
  bool masked = false;
  for (int64_t r = 0; r < kTile; ++r) {
    const bool real = r < static_cast<int64_t>(rows.size());
    first[r] = static_cast<float>(real ? rows[r].key_begin : begin);
    last[r] = static_cast<float>(real ? rows[r].key_end : end);
    masked |= real && (rows[r].key_begin > begin || rows[r].key_end < end);
  }
  for (int64_t half = 0; half < kTile; half += kLanes) {
    float* const column = logits + half;
    Vec max = hn::Set(kTag, -kInfinity);
    if (masked) {
      const Vec lo = hn::Load(kTag, first + half);
      const Vec hi = hn::Load(kTag, last + half);
      const Vec hidden = hn::Set(kTag, -kInfinity);
      for (int64_t j = begin; j < end; ++j) {
        const Vec at = hn::Set(kTag, static_cast<float>(j));
        const auto seen = hn::And(hn::Ge(at, lo), hn::Lt(at, hi));
        const Vec logit = hn::IfThenElse(seen, hn::Load(kTag, column + j * kTile), hidden);
        hn::Store(logit, kTag, column + j * kTile);
        max = hn::Max(max, logit);
      }
    } else {
      for (int64_t j = begin; j < end; ++j) max = hn::Max(max, hn::Load(kTag, column + j * kTile));
    }
    // Four sums by j mod 4, so that the additions overlap and their order depends on j alone.
    Vec sums[4] = {hn::Zero(kTag), hn::Zero(kTag), hn::Zero(kTag), hn::Zero(kTag)};
    const auto exponential = [&](int64_t j, Vec& sum) HWY_ATTR {
      const Vec p = Exp2(hn::Sub(hn::Load(kTag, column + j * kTile), max));
      hn::Store(p, kTag, column + j * kTile);
      sum = hn::Add(sum, p);
    };
    int64_t j = begin;
    for (; j < end && j % 4 != 0; ++j) exponential(j, sums[j % 4]);
    for (; j + 4 <= end; j += 4) {
      exponential(j, sums[0]);
      exponential(j + 1, sums[1]);
      exponential(j + 2, sums[2]);
      exponential(j + 3, sums[3]);
    }
    for (; j < end; ++j) exponential(j, sums[j % 4]);
    hn::Store(max, kTag, max_out + half);
    hn::Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), kTag, sum_out + half);
  }
}

// A tile's workspace.
struct TileBuffers {
  float* row_major;   // [kTile, d]
  float* transposed;  // [d, kTile]
  float* logits;      // [n_keys, kTile]

  TileBuffers(float* workspace, int64_t d)
      : row_major(workspace), transposed(row_major + kTile * d), logits(transposed + kTile * d) {}
};

// The logits of keys [begin, end), which are all that any row of the tile sees.
HWY_INLINE void TileLogits(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                           const TileBuffers& buffers, int64_t& begin, int64_t& end) {
  const int64_t d = run.head_dim;
  begin = run.n_keys;
  end = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    begin = std::min<int64_t>(begin, rows[r].key_begin);
    end = std::max<int64_t>(end, rows[r].key_end);
    RotateRow(rows[r].q, rows[r].x, table, rows[r].scale * kLog2E,
              buffers.row_major + static_cast<int64_t>(r) * d);
  }
  // Rows that are missing in the tile are zero: their results are not looked at.
  std::fill_n(buffers.row_major + static_cast<int64_t>(rows.size()) * d,
              (kTile - static_cast<int64_t>(rows.size())) * d, 0.0f);
  Transpose(buffers.row_major, kTile, d, d, buffers.transposed, kTile);
  Product(run.k + begin * d, d, end - begin, buffers.transposed, d, buffers.logits + begin * kTile, kTile);
}

void AttendTile(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                float* HWY_RESTRICT workspace) {
  const int64_t d = run.head_dim;
  const TileBuffers buffers(workspace, d);
  float* const row_major = buffers.row_major;
  float* const transposed = buffers.transposed;
  float* const logits = buffers.logits;
  HWY_ALIGN float max[kTile];
  HWY_ALIGN float sum[kTile];
  int64_t begin;
  int64_t end;
  TileLogits(rows, run, table, buffers, begin, end);
  Softmax(rows, begin, end, logits, max, sum);
  float* const values = transposed;  // [d][kTile]
  Product(run.v + begin, run.v_stride, d, logits + begin * kTile, end - begin, values, kTile);
  Transpose(values, d, kTile, kTile, row_major, d);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    MergeInto(rows[r].state, d, row_major + static_cast<int64_t>(r) * d, max[r], sum[r]);
  }
}

void Attend(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
            float* workspace) {
  for (std::size_t r = 0; r < rows.size(); r += kTile) {
    AttendTile(rows.subspan(r, std::min<std::size_t>(kTile, rows.size() - r)), run, table, workspace);
  }
}

void MassTile(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
              float* HWY_RESTRICT mass, float* HWY_RESTRICT workspace) {
  const TileBuffers buffers(workspace, run.head_dim);
  int64_t begin;
  int64_t end;
  TileLogits(rows, run, table, buffers, begin, end);
  HWY_ALIGN float first[kTile];
  HWY_ALIGN float last[kTile];
  HWY_ALIGN float max[kTile];
  HWY_ALIGN float weight[kTile];
  for (std::size_t r = 0; r < kTile; ++r) {  // a missing row sees nothing
    const bool real = r < rows.size();
    first[r] = static_cast<float>(real ? rows[r].key_begin : end);
    last[r] = static_cast<float>(real ? rows[r].key_end : end);
    max[r] = real ? rows[r].state[0] : 0;
    weight[r] = real ? 1 / rows[r].state[1] : 0;
  }
  for (int64_t j = begin; j < end; ++j) {
    const Vec at = hn::Set(kTag, static_cast<float>(j));
    Vec total = hn::Zero(kTag);
    for (int64_t half = 0; half < kTile; half += kLanes) {
      const auto seen =
          hn::And(hn::Ge(at, hn::Load(kTag, first + half)), hn::Lt(at, hn::Load(kTag, last + half)));
      const Vec logit = hn::Load(kTag, buffers.logits + j * kTile + half);
      const Vec p = hn::Mul(Exp2(hn::Sub(logit, hn::Load(kTag, max + half))), hn::Load(kTag, weight + half));
      total = hn::Add(total, hn::IfThenElseZero(seen, p));
    }
    mass[j] += hn::GetLane(hn::SumOfLanes(kTag, total));
  }
}

void ColumnMass(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table, float* mass,
                float* workspace) {
  for (std::size_t r = 0; r < rows.size(); r += kTile) {
    MassTile(rows.subspan(r, std::min<std::size_t>(kTile, rows.size() - r)), run, table, mass, workspace);
  }
}

void Rotate(const float* in, int64_t x, const RotationTable& table, float* out) {
  RotateRow(in, x, table, 1, out);
}

// The sums of four vectors' lanes. Each is summed in the same order.
HWY_INLINE auto SumsOfLanes(const Vec (&v)[4]) {
  const hn::Repartition<double, Tag> pairs;
  const auto low = [&](Vec a, Vec b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(kTag, a, b), hn::InterleaveUpper(kTag, a, b));
  };
  const auto first = hn::BitCast(pairs, low(v[0], v[1]));
  const auto second = hn::BitCast(pairs, low(v[2], v[3]));
  const Vec blocks = hn::Add(hn::BitCast(kTag, hn::InterleaveLower(pairs, first, second)),
                             hn::BitCast(kTag, hn::InterleaveUpper(pairs, first, second)));
  const hn::Half<Tag> half;
  const auto halves = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
  if constexpr (kLanes == 8) {
    return halves;
  } else {
    const hn::Half<hn::Half<Tag>> quarter;
    return hn::Add(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves));
  }
}

// Factors of eight-bit keys and values; other types have none.
template <typename Run>
HWY_INLINE void ScaleLogits(const Run&, int64_t, int64_t, float*) {}
HWY_INLINE void ScaleLogits(const Q8KeyRun& run, int64_t from, int64_t to, float* row) {
  for (int64_t j = from; j < to; j += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(kTag, row + j), hn::LoadU(kTag, run.k_scale + j)), kTag, row + j);
  }
}
template <typename Run>
HWY_INLINE Vec ScaledWeight(const Run&, int64_t, Vec p) {
  return p;
}
HWY_INLINE Vec ScaledWeight(const Q8KeyRun& run, int64_t j, Vec p) {
  return hn::Mul(p, hn::LoadU(kTag, run.v_scale + j));
}

// out[r * out_stride + b] = sum over i in [0, n) of row b of `numbers` at i * rows[r * row_stride + i], for
// all of its rows, one or four, and r in [0, kRows); the same for a row alone as among others. n: a multiple
// of kLanes.
template <int kRows, typename Numbers>
HWY_INLINE void DotProducts(const Numbers& numbers, const float* HWY_RESTRICT rows, int64_t row_stride,
                            int64_t n, float* HWY_RESTRICT out, int64_t out_stride) {
  Vec sums[kRows][4];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int b = 0; b < 4; ++b) sums[r][b] = hn::Zero(kTag);
  }
  numbers.template ForEach<kRows>(n, [&](int64_t i, int b, Vec element) HWY_ATTR {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      sums[r][b] = hn::MulAdd(element, hn::LoadU(kTag, rows + r * row_stride + i), sums[r][b]);
    }
  });
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    const auto all = SumsOfLanes(sums[r]);
    if constexpr (Numbers::kCount == 1) {
      out[r * out_stride] = hn::GetLane(all);
    } else {
      hn::StoreU(all, hn::CappedTag<float, 4>(), out + r * out_stride);
    }
  }
}

// Logits of up to kFew rows, [kRows][kFewStride], -inf where a row does not see a key: dot products along K's
// contiguous direction. Keys [from, to) are all that any row sees, in multiples of what `numbers` are read
// in. q: [kRows][d].
template <int kRows, typename Run, typename Source>
HWY_INLINE void FewLogits(const RotatedRow* rows, const Run& run, Source& numbers, const RotationTable& table,
                          float* HWY_RESTRICT q, float* HWY_RESTRICT logits, int64_t& from, int64_t& to) {
  const int64_t d = run.head_dim;
  int64_t begin = run.n_keys;
  int64_t end = 0;
  for (int r = 0; r < kRows; ++r) {
    begin = std::min<int64_t>(begin, rows[r].key_begin);
    end = std::max<int64_t>(end, rows[r].key_end);
    RotateRow(rows[r].q, rows[r].x, table, rows[r].scale * kLog2E, q + r * d);
  }
  numbers.TakeQueries(q, kRows);
  numbers.ForEachKeys(begin, end, [&](int64_t j, const auto& keys) HWY_ATTR {
    DotProducts<kRows>(keys, keys.RowsFor(q), d, d, logits + j, kFewStride);
  });
  from = begin / Source::kWhole * Source::kWhole;
  to = (end + Source::kWhole - 1) / Source::kWhole * Source::kWhole;
  for (int r = 0; r < kRows; ++r) {
    float* const row = logits + r * kFewStride;
    ScaleLogits(run, from, to, row);
    for (int64_t j = from; j < rows[r].key_begin; ++j) row[j] = -kInfinity;
    for (int64_t j = rows[r].key_end; j < to; ++j) row[j] = -kInfinity;
  }
}

static_assert(kFew * (2 * kMaxHeadDim + kFewStride) + PackedNumbers::Workspace(kMaxHeadDim) <=
              AttendWorkspace(kTile, kMaxHeadDim));

// Up to kFew rows on a run: dot products along the contiguous direction of K and V.
template <int kRows, typename Run>
void AttendGroup(const RotatedRow* rows, const Run& run, const RotationTable& table,
                 float* HWY_RESTRICT workspace) {
  const int64_t d = run.head_dim;
  float* const q = workspace;                        // [kRows][d]
  float* const logits = q + kFew * d;                // [kRows][kFewStride]
  float* const values = logits + kFew * kFewStride;  // [kRows][d]
  auto numbers = NumbersFrom(run, values + kFew * d);
  int64_t from, to;
  FewLogits<kRows>(rows, run, numbers, table, q, logits, from, to);
  float max[kRows];
  float sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    float* const row = logits + r * kFewStride;
    Vec most = hn::Set(kTag, -kInfinity);
    for (int64_t j = from; j < to; j += kLanes) most = hn::Max(most, hn::LoadU(kTag, row + j));
    most = hn::MaxOfLanes(kTag, most);
    max[r] = hn::GetLane(most);
    Vec total = hn::Zero(kTag);
    for (int64_t j = from; j < to; j += kLanes) {
      const Vec p = Exp2(hn::Sub(hn::LoadU(kTag, row + j), most));
      hn::StoreU(ScaledWeight(run, j, p), kTag, row + j);
      total = hn::Add(total, p);
    }
    sum[r] = hn::GetLane(hn::SumOfLanes(kTag, total));
  }
  numbers.TakeWeights(logits, kRows, from, to);
  numbers.ForEachValues(from, to, [&](int64_t m, const auto& channels) HWY_ATTR {
    DotProducts<kRows>(channels, channels.RowsFor(logits + from), kFewStride, to - from, values + m, d);
  });
  numbers.Finish(values, kRows);
  for (int r = 0; r < kRows; ++r) MergeInto(rows[r].state, d, values + r * d, max[r], sum[r]);
}

// The probabilities of each row's keys, by the maxima and sums of all that it attended to.
template <int kRows, typename Run>
void MassGroup(const RotatedRow* rows, const Run& run, const RotationTable& table, float* HWY_RESTRICT masses,
               float* HWY_RESTRICT workspace) {
  float* const logits = workspace + kFew * run.head_dim;
  auto numbers = NumbersFrom(run, nullptr);
  int64_t from, to;
  FewLogits<kRows>(rows, run, numbers, table, workspace, logits, from, to);
  for (int r = 0; r < kRows; ++r) {
    const Vec max = hn::Set(kTag, rows[r].state[0]);
    const Vec weight = hn::Set(kTag, 1 / rows[r].state[1]);
    for (int64_t j = from; j < to; j += kLanes) {
      const Vec p = hn::Mul(Exp2(hn::Sub(hn::LoadU(kTag, logits + r * kFewStride + j), max)), weight);
      float* const mass = masses + r * kMaxRun + j;
      hn::StoreU(hn::Add(hn::LoadU(kTag, mass), p), kTag, mass);
    }
  }
}

template <typename Run>
void AttendFew(std::span<const RotatedRow> rows, const Run& run, const RotationTable& table,
               float* workspace) {
  std::size_t r = 0;
  Run again = run;  // which the next rows read: it is in cache
  again.next = nullptr;
  for (; r + 4 < rows.size(); r += 4) AttendGroup<4>(rows.data() + r, again, table, workspace);
  switch (rows.size() - r) {
    case 4:
      AttendGroup<4>(rows.data() + r, run, table, workspace);
      break;
    case 3:
      AttendGroup<3>(rows.data() + r, run, table, workspace);
      break;
    case 2:
      AttendGroup<2>(rows.data() + r, run, table, workspace);
      break;
    case 1:
      AttendGroup<1>(rows.data() + r, run, table, workspace);
      break;
    default:
      break;
  }
}

template <typename Run>
void ColumnMassFew(std::span<const RotatedRow> rows, const Run& run, const RotationTable& table,
                   float* masses, float* workspace) {
  std::size_t r = 0;
  for (; r + 3 <= rows.size(); r += 3) {
    MassGroup<3>(rows.data() + r, run, table, masses + r * kMaxRun, workspace);
  }
  for (; r < rows.size(); ++r) MassGroup<1>(rows.data() + r, run, table, masses + r * kMaxRun, workspace);
}

// The vectors are turned, not the queries: so each row's scores leave the registers as they lie in memory,
// and what is turned serves all rows.
void Scores(std::span<const float* const> q, const float* vectors, int64_t n, int64_t d, float* scores,
            int64_t stride, float* workspace) {
  constexpr int64_t kRows = kTile / kBlock * kBlock;
  float* const row_major = workspace;
  float* const transposed = row_major + kTile * d;
  float* const part = transposed + kTile * d;
  const int64_t n_rows = static_cast<int64_t>(q.size());
  const int64_t d_fours = d / 4 * 4;
  for (int64_t c0 = 0; c0 < n; c0 += kTile) {
    const int64_t n_here = std::min(kTile, n - c0);
    const int64_t here_fours = n_here / 4 * 4;
    const float* const from = vectors + c0 * d;
    if (n_here < kTile) std::fill_n(transposed, kTile * d, 0.0f);
    for (int64_t c = 0; c < here_fours; c += 4) {
      FetchAhead(from + c * d, 4 * d);
      Transpose(from + c * d, 4, d_fours, d, transposed + c, kTile);
    }
    for (int64_t c = 0; c < n_here; ++c) {
      for (int64_t m = c < here_fours ? d_fours : 0; m < d; ++m) transposed[m * kTile + c] = from[c * d + m];
    }
    for (int64_t r0 = 0; r0 < n_rows; r0 += kRows) {
      const int64_t rows_here = std::min(kRows, n_rows - r0);
      for (int64_t r = 0; r < rows_here; ++r) {
        std::copy_n(q[static_cast<std::size_t>(r0 + r)], d, row_major + r * d);
      }
      float* const to = scores + r0 * stride + c0;
      if (n_here == kTile) {
        Product(row_major, d, rows_here, transposed, d, to, stride);
      } else {
        Product(row_major, d, rows_here, transposed, d, part, kTile);
        for (int64_t r = 0; r < rows_here; ++r) std::copy_n(part + r * kTile, n_here, to + r * stride);
      }
    }
  }
}

// out[c] = sum over i in [0, n) of a[i] * t[i][c] for all columns at once, in ascending i: one row alone has
// too few sums on two vectors to hide how long an addition takes.
HWY_INLINE void RowTimesColumns(const float* HWY_RESTRICT a, const float* HWY_RESTRICT t, int64_t n,
                                float* HWY_RESTRICT out) {
  constexpr int kVectors = static_cast<int>(kScoredTogether / kLanes);
  Vec sums[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kTag);
  for (int64_t i = 0; i < n; ++i) {
    const float* const from = t + i * kScoredTogether;
    FetchAhead(from, kScoredTogether);
    const Vec element = hn::Set(kTag, a[i]);
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(element, hn::Load(kTag, from + v * kLanes), sums[v]);
    }
  }
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], kTag, out + v * kLanes);
}

void ScoresOfColumns(std::span<const float* const> q, const float* columns, int64_t begin, int64_t end,
                     int64_t d, float* scores, int64_t stride, float* workspace) {
  static_assert(kScoredTogether % kTile == 0);
  constexpr int64_t kRows = kTile / kBlock * kBlock;
  float* const row_major = workspace;
  float* const part = row_major + kTile * d;
  const int64_t n_rows = static_cast<int64_t>(q.size());
  const bool all = begin == 0 && end == kScoredTogether;
  for (int64_t r0 = 0; r0 < n_rows; r0 += kRows) {
    const int64_t rows_here = std::min(kRows, n_rows - r0);
    const int64_t together = rows_here - rows_here % kBlock % 4;  // in blocks of several rows
    float* const to = scores + r0 * stride;
    for (int64_t r = together; r < rows_here; ++r) {
      const float* const row = q[static_cast<std::size_t>(r0 + r)];
      RowTimesColumns(row, columns, d, all ? to + r * stride : part);
      if (!all) std::copy(part + begin, part + end, to + r * stride);
    }
    if (together == 0) continue;
    for (int64_t r = 0; r < together; ++r) {
      std::copy_n(q[static_cast<std::size_t>(r0 + r)], d, row_major + r * d);
    }
    for (int64_t c0 = begin / kTile * kTile; c0 < end; c0 += kTile) {
      if (r0 == 0) FetchAhead(columns + c0 * d, kTile * d);  // each tile its share of the next block
      if (begin <= c0 && c0 + kTile <= end) {
        Product<kScoredTogether>(row_major, d, together, columns + c0, d, to + c0 - begin, stride);
        continue;
      }
      Product<kScoredTogether>(row_major, d, together, columns + c0, d, part, kTile);
      const int64_t first = std::max(begin, c0), last = std::min(end, c0 + kTile);
      for (int64_t r = 0; r < together; ++r) {
        const float* const row = part + r * kTile - c0;
        std::copy(row + first, row + last, to + r * stride + first - begin);
      }
    }
  }
}

void Merge(float* a, const float* b, int64_t d) {
  if (b[d + 1] == 0) return;
  MergeInto(a, d, b, b[d], b[d + 1]);
}

}  // namespace

const AttentionKernels* AttentionTable() {
  static constexpr AttentionKernels kTable = {.row_tile = kTile,
                                              .attend = Attend,
                                              .attend_bf16 = nullptr,
                                              .attend_few = AttendFew<KeyRun>,
                                              .attend_few_bf16 = AttendFew<Bf16KeyRun>,
                                              .attend_few_packed = AttendFew<PackedKeyRun>,
                                              .attend_few_q8 = AttendFew<Q8KeyRun>,
                                              .column_mass = ColumnMass,
                                              .column_mass_few = ColumnMassFew<KeyRun>,
                                              .column_mass_few_bf16 = ColumnMassFew<Bf16KeyRun>,
                                              .scores = Scores,
                                              .scores_of_columns = ScoresOfColumns,
                                              .rotate = Rotate,
                                              .merge = Merge};
  return &kTable;
}

}  // namespace longheads::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace longheads::cpu {

std::vector<Implementation<AttentionKernels>> SimdAttention() {
  return {{"avx512", Declined(HWY_AVX3), N_AVX3::AttentionTable()},
          {"avx2", Declined(HWY_AVX2), N_AVX2::AttentionTable()}};
}

}  // namespace longheads::cpu
#endif  // HWY_ONCE
