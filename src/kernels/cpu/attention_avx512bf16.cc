// kernels/attention.h's attend_bf16 by products of pairs of bfloat16 (VDPBF16PS): twice the work of float32's
// for an instruction, on pages as they are.
//
// Lanes are query rows, as in simd_attention.cc. What is broadcast against all rows is a pair: two dimensions
// of a key, or two keys of a dimension of the values, which lie side by side in K row-major and V transposed.
// A tile's queries are rotated and packed once for all pages, and its values stay in place while their
// softmax goes on from page to page.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/simd_kernels.h"

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace longheads::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kTile = 48;   // rows
constexpr int64_t kKeys = 128;  // at a time: their logits take 24 KiB of the first cache
constexpr int64_t kMaxPairs = 16 * ((kMaxHeadDim / 2 + 15) / 16);
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896340736f;  // logits are in units of ln 2, as in simd_attention.cc
// In the place of -inf for the largest of no logits: differences stay numbers.
constexpr float kLeast = -1e30f;

// Keys, or dimensions of values, that meet kV vectors of rows at once: with three 24 sums, which with the
// rows and a broadcast pair take 28 of 32 registers; with one as many as hide the latency of an instruction.
template <int kV>
constexpr int kBlock = kV == 1 ? 16 : 8;

// 2^x for x <= 0 to a relative error of 2^-18, which is 2^-9 of what rounding to bfloat16 adds; 0 for -inf.
// NaN stays NaN.
inline __m512 Exp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // x - floor(x)
  // 2^f on [0, 1): of all polynomials of this degree that are 1 at 0 the one whose largest relative error is
  // least. Where the largest logit stays, what was summed up before must stay too, to the bit.
  __m512 p = _mm512_set1_ps(0.013426686821980047f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05224247012864172f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24128020666565636f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6930448446615717f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);  // p 2^floor(x)
}

inline __m512i Pair(const void* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}

inline __m512 DotPairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// sums[b][v] += sum over pairs i in [0, n) of a's pair i of row b times t[i][v], in ascending i. Row b of a
// is `stride` numbers after row b - 1.
template <int kV>
inline void PairProducts(const BFloat16* a, int64_t stride, const uint32_t* t, int64_t n,
                         __m512 (&sums)[kBlock<kV>][kV]) {
  for (int64_t i = 0; i < n; ++i) {
    __m512i rows[kV];
#pragma GCC unroll 3
    for (int v = 0; v < kV; ++v) rows[v] = _mm512_loadu_si512(t + (i * kV + v) * kLanes);
#pragma GCC unroll 16
    for (int b = 0; b < kBlock<kV>; ++b) {
      const __m512i pair = Pair(a + b * stride + 2 * i);
#pragma GCC unroll 3
      for (int v = 0; v < kV; ++v) sums[b][v] = DotPairs(sums[b][v], pair, rows[v]);
    }
  }
}

// A 16 x 16 matrix of 32-bit numbers, a row in each vector.
inline void Transpose(__m512i (&m)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now m[4 g + c] has column c of each of its four quarters for rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(m[c], m[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(m[c], m[4 + c], 0xdd);
    t[8 + c] = _mm512_shuffle_i32x4(m[8 + c], m[12 + c], 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(m[8 + c], m[12 + c], 0xdd);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    m[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    m[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    m[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
    m[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
  }
}

// The rows of a tile: kV vectors of them, those behind rows.size() zero.
template <int kV>
class Tile {
 public:
  static constexpr int64_t kRows = kV * kLanes;

  Tile(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
       float* workspace)
      : rows_(rows),
        pages_(pages),
        d_(pages.head_dim),
        values_(workspace),
        logits_(values_ + d_ * kRows),
        weights_(reinterpret_cast<uint32_t*>(logits_ + kKeys * kRows)),
        queries_(weights_ + kKeys / 2 * kRows) {
    begin_ = pages.n_keys;
    end_ = 0;
    for (const RotatedRow& row : rows) {
      begin_ = std::min<int64_t>(begin_, row.key_begin);
      end_ = std::max<int64_t>(end_, row.key_end);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const bool real = r < static_cast<int64_t>(rows.size());
      first_[r] = real ? rows[static_cast<std::size_t>(r)].key_begin : 0;
      last_[r] = real ? rows[static_cast<std::size_t>(r)].key_end : std::numeric_limits<int32_t>::max();
      max_[r] = kLeast;
      sum_[r] = 0;
    }
    std::fill_n(values_, d_ * kRows, 0.0f);
    Pack(table);
  }

  void Run() {
    // By the keys' places in their page: what a row's sums are made of does not depend on where a tile
    // begins.
    for (int64_t from = begin_ / kKeys * kKeys; from < end_; from += kKeys) {
      Attend(from, std::max(begin_, from), std::min(end_, from + kKeys));
    }
    Merge();
  }

 private:
  static void Prefetch(const float* numbers, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) _mm_prefetch(reinterpret_cast<const char*>(numbers + i), _MM_HINT_T0);
  }

  // queries_[pair][row] = R(x) q, scaled.
  void Pack(const RotationTable& table) {
    const auto rotate = N_AVX3::AttentionTable()->rotate;
    const int64_t n_pairs = d_ / 2;
    alignas(64) float rotated[kMaxHeadDim];
    alignas(64) uint32_t packed[kLanes][kMaxPairs];
    for (int v = 0; v < kV; ++v) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto r = static_cast<std::size_t>(v * kLanes + lane);
        if (r >= rows_.size()) {
          std::fill_n(packed[lane], n_pairs, 0u);
          continue;
        }
        // Queries of a head are far apart, and mostly in no near cache.
        constexpr std::size_t kAhead = 6;
        if (r + kAhead < rows_.size()) Prefetch(rows_[r + kAhead].q, d_);
        rotate(rows_[r].q, rows_[r].x, table, rotated);
        const __m512 scale = _mm512_set1_ps(rows_[r].scale * kLog2E);
        for (int64_t m = 0; m < d_; m += kLanes) {
          const __m256bh half = _mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_load_ps(rotated + m), scale));
          _mm256_store_si256(reinterpret_cast<__m256i*>(packed[lane] + m / 2),
                             reinterpret_cast<__m256i>(half));
        }
      }
      for (int64_t p = 0; p < n_pairs; p += kLanes) {
        __m512i block[16];
#pragma GCC unroll 16
        for (int lane = 0; lane < 16; ++lane) block[lane] = _mm512_load_si512(packed[lane] + p);
        Transpose(block);
        const int64_t n = std::min<int64_t>(kLanes, n_pairs - p);
        for (int64_t i = 0; i < n; ++i)
          _mm512_storeu_si512(queries_ + (p + i) * kRows + v * kLanes, block[i]);
      }
    }
  }

  // Keys [begin, end), all behind `from`, the first of a piece of a page: logits, softmax, values.
  void Attend(int64_t from, int64_t begin, int64_t end) {
    const auto [k, v] = pages_.pages[static_cast<std::size_t>(from / kMaxRun)];
    const int64_t at = from % kMaxRun;
    // Whole blocks: what no row sees weighs nothing.
    const int64_t first = (begin - from) / kBlock<kV> * kBlock<kV>;
    const int64_t last = (end - from + kBlock<kV> - 1) / kBlock<kV> * kBlock<kV>;
    Logits(k + at * d_, from, first, last);
    Softmax(first, last);
    for (int64_t m = 0; m < d_; m += kBlock<kV>) {
      __m512 sums[kBlock<kV>][kV];
      float* const to = values_ + m * kRows;
#pragma GCC unroll 16
      for (int b = 0; b < kBlock<kV>; ++b) {
#pragma GCC unroll 3
        for (int i = 0; i < kV; ++i) {
          sums[b][i] = _mm512_mul_ps(_mm512_loadu_ps(to + b * kRows + i * kLanes),
                                     _mm512_loadu_ps(rescale_ + i * kLanes));
        }
      }
      PairProducts<kV>(v + m * kMaxRun + at + first, kMaxRun, weights_ + first / 2 * kRows,
                       (last - first) / 2, sums);
#pragma GCC unroll 16
      for (int b = 0; b < kBlock<kV>; ++b) {
#pragma GCC unroll 3
        for (int i = 0; i < kV; ++i) _mm512_storeu_ps(to + b * kRows + i * kLanes, sums[b][i]);
      }
    }
  }

  // logits_[j][row] of keys from + [first, last), -inf where a row does not see the key; max_ with them, and
  // rescale_, what earlier sums are to be multiplied with.
  void Logits(const BFloat16* k, int64_t from, int64_t first, int64_t last) {
    bool masked = false;
    for (const RotatedRow& row : rows_) masked |= row.key_begin > from + first || row.key_end < from + last;
    __m512 max[kV];
    for (int v = 0; v < kV; ++v) max[v] = _mm512_loadu_ps(max_ + v * kLanes);
    for (int64_t j = first; j < last; j += kBlock<kV>) {
      __m512 sums[kBlock<kV>][kV];
#pragma GCC unroll 16
      for (int b = 0; b < kBlock<kV>; ++b) {
#pragma GCC unroll 3
        for (int v = 0; v < kV; ++v) sums[b][v] = _mm512_setzero_ps();
      }
      PairProducts<kV>(k + j * d_, d_, queries_, d_ / 2, sums);
      if (masked) Mask(from + j, sums);
#pragma GCC unroll 16
      for (int b = 0; b < kBlock<kV>; ++b) {
#pragma GCC unroll 3
        for (int v = 0; v < kV; ++v) {
          max[v] = _mm512_max_ps(max[v], sums[b][v]);
          _mm512_storeu_ps(logits_ + (j + b) * kRows + v * kLanes, sums[b][v]);
        }
      }
    }
    for (int v = 0; v < kV; ++v) {
      const __m512 before = _mm512_loadu_ps(max_ + v * kLanes);
      _mm512_storeu_ps(rescale_ + v * kLanes, Exp2(_mm512_sub_ps(before, max[v])));
      _mm512_storeu_ps(max_ + v * kLanes, max[v]);
    }
  }

  // Of keys key .. key + kBlock - 1.
  void Mask(int64_t key, __m512 (&sums)[kBlock<kV>][kV]) const {
    const __m512 hidden = _mm512_set1_ps(-kInfinity);
    for (int v = 0; v < kV; ++v) {
      const __m512i first = _mm512_loadu_si512(first_ + v * kLanes);
      const __m512i last = _mm512_loadu_si512(last_ + v * kLanes);
#pragma GCC unroll 16
      for (int b = 0; b < kBlock<kV>; ++b) {
        const __m512i at = _mm512_set1_epi32(static_cast<int32_t>(key + b));
        const __mmask16 seen = _mm512_cmple_epi32_mask(first, at) & _mm512_cmpgt_epi32_mask(last, at);
        sums[b][v] = _mm512_mask_mov_ps(hidden, seen, sums[b][v]);
      }
    }
  }

  // weights_[pair of keys][row] = exp(logit - max) of keys [first, last) of the piece, and sum_ with them.
  void Softmax(int64_t first, int64_t last) {
    // The second vector's numbers between the first's.
    alignas(64) static constexpr uint16_t kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                             21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                             11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i interleave = _mm512_load_si512(kInterleave);
    for (int v = 0; v < kV; ++v) {
      const __m512 max = _mm512_loadu_ps(max_ + v * kLanes);
      // Two sums by the key's parity, so that the additions overlap.
      __m512 even = _mm512_mul_ps(_mm512_loadu_ps(sum_ + v * kLanes), _mm512_loadu_ps(rescale_ + v * kLanes));
      __m512 odd = _mm512_setzero_ps();
#pragma GCC unroll 2
      for (int64_t j = first; j < last; j += 2) {
        const float* const logits = logits_ + j * kRows + v * kLanes;
        const __m512 p0 = Exp2(_mm512_sub_ps(_mm512_loadu_ps(logits), max));
        const __m512 p1 = Exp2(_mm512_sub_ps(_mm512_loadu_ps(logits + kRows), max));
        even = _mm512_add_ps(even, p0);
        odd = _mm512_add_ps(odd, p1);
        const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p1, p0));
        _mm512_storeu_si512(weights_ + j / 2 * kRows + v * kLanes,
                            _mm512_permutexvar_epi16(interleave, both));
      }
      _mm512_storeu_ps(sum_ + v * kLanes, _mm512_add_ps(even, odd));
    }
  }

  // Into the rows' states.
  void Merge() {
    for (std::size_t r0 = 0; r0 < rows_.size(); r0 += kLanes) {
      const int64_t n = std::min<int64_t>(kLanes, static_cast<int64_t>(rows_.size() - r0));
      const std::span<const RotatedRow> rows = rows_.subspan(r0, static_cast<std::size_t>(n));
      alignas(64) float max[kLanes] = {}, sum[kLanes] = {}, of_state[kLanes], of_part[kLanes];
      for (std::size_t i = 0; i < rows.size(); ++i) {
        max[i] = rows[i].state[d_];
        sum[i] = rows[i].state[d_ + 1];
      }
      const __m512 state_max = _mm512_load_ps(max);
      const __m512 part_max = _mm512_loadu_ps(max_ + r0);
      const __m512 most = _mm512_max_ps(state_max, part_max);
      const __m512 a = Exp2(_mm512_sub_ps(state_max, most));  // 0 for -inf: the empty state
      const __m512 b = Exp2(_mm512_sub_ps(part_max, most));
      _mm512_store_ps(of_state, a);
      _mm512_store_ps(of_part, b);
      _mm512_store_ps(max, most);
      _mm512_store_ps(sum,
                      _mm512_fmadd_ps(_mm512_load_ps(sum), a, _mm512_mul_ps(_mm512_loadu_ps(sum_ + r0), b)));
      for (int64_t m = 0; m < d_; m += kLanes) {
        __m512i block[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          block[i] = _mm512_loadu_si512(values_ + (m + i) * kRows + static_cast<int64_t>(r0));
        }
        Transpose(block);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          float* const state = rows[i].state + m;
          const __m512 part = _mm512_mul_ps(_mm512_castsi512_ps(block[i]), _mm512_set1_ps(of_part[i]));
          _mm512_storeu_ps(state, _mm512_fmadd_ps(_mm512_loadu_ps(state), _mm512_set1_ps(of_state[i]), part));
        }
      }
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].state[d_] = max[i];
        rows[i].state[d_ + 1] = sum[i];
      }
    }
  }

  std::span<const RotatedRow> rows_;
  const Bf16KeyPages& pages_;
  const int64_t d_;
  int64_t begin_, end_;  // the keys that any row sees
  // In the workspace.
  float* values_;      // [d][kRows]
  float* logits_;      // [kKeys][kRows]
  uint32_t* weights_;  // [kKeys / 2][kRows]
  uint32_t* queries_;  // [d / 2][kRows]
  alignas(64) int32_t first_[kRows];
  alignas(64) int32_t last_[kRows];
  alignas(64) float max_[kRows];
  alignas(64) float sum_[kRows];
  alignas(64) float rescale_[kRows];
};

static_assert(kTile * (kMaxHeadDim + kKeys + kKeys / 2 + kMaxHeadDim / 2) <=
              AttendWorkspace(kTile, kMaxHeadDim));

void AttendPages(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
                 float* workspace) {
  while (!rows.empty()) {
    const auto n = std::min<std::size_t>(kTile, rows.size());
    const std::span<const RotatedRow> tile = rows.first(n);
    if (n > 2 * kLanes) {
      Tile<3>(tile, pages, table, workspace).Run();
    } else if (n > kLanes) {
      Tile<2>(tile, pages, table, workspace).Run();
    } else {
      Tile<1>(tile, pages, table, workspace).Run();
    }
    rows = rows.subspan(n);
  }
}

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES

namespace longheads::cpu {

// Asked for on every processor.
const AttentionKernels* Avx512Bf16Attention() {
  static const AttentionKernels kTable = [] {
    AttentionKernels table = *N_AVX3::AttentionTable();
    table.row_tile = kTile;
    table.attend_bf16 = AttendPages;
    return table;
  }();
  return &kTable;
}

}  // namespace longheads::cpu
