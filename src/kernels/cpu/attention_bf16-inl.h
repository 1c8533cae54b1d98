// kernels/attention.h's attend_bf16 on AVX-512, but for the products of pairs of bfloat16, which are their
// file's: queries rotated and packed in pairs of dimensions, softmax from page to page, merging into states.
//
// Lanes are query rows, as in simd_attention.cc. A tile's queries are rotated and packed once for all pages,
// and its values stay in place while their softmax goes on from page to page.
//
// The file of the products defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/cpu/transpose-inl.h"

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kKeys = 128;  // at a time: their logits take 24 KiB of the first cache for 48 rows
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896340736f;  // logits are in units of ln 2, as in simd_attention.cc
// In the place of -inf for the largest of no logits: differences stay numbers. (A logit as low weighs nothing
// beside any that is not.)
constexpr float kLeast = -1e30f;

// Pairs of dimensions as queries are packed: whole vectors of them, the last with zeros behind the head's.
constexpr int64_t PackedPairs(int64_t head_dim) { return (head_dim / 2 + kLanes - 1) / kLanes * kLanes; }

// 2^x to a relative error of 2^-18, which is 2^-9 of what rounding to bfloat16 adds; 0 for -inf.
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

// Pairs of bfloat16, a number of each vector, rounded to the nearest: in integers, as the conversion and the
// interleaving take as long as the exponentials on Intel's ports. Of weights: none is negative; between two
// the one away from 0.
inline __m512i RoundedPairs(__m512 first, __m512 second) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(first), half), 16);
  return _mm512_mask_blend_epi16(0xAAAAAAAA, low, _mm512_add_epi32(_mm512_castps_si512(second), half));
}

// The dimensions that those from m on of q are turned with.
struct PartnerBeside {
  static __m512 Of(const float* q, int64_t m, const RotationTable&) {
    return _mm512_permute_ps(_mm512_loadu_ps(q + m), 0b10110001);
  }
};
struct PartnerInHalf {  // of whole vectors
  static __m512 Of(const float* q, int64_t m, const RotationTable& table) {
    return _mm512_loadu_ps(q + table.partner(m));
  }
};
struct AnyPartner {
  static __m512 Of(const float* q, int64_t m, const RotationTable& table) {
    alignas(64) float partners[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) partners[lane] = q[table.partner(m + lane)];
    return _mm512_load_ps(partners);
  }
};

// R(x) q of a row, times its scale: as simd_attention.cc rotates, to the bit.
template <typename Partner>
class Rotation {
 public:
  Rotation(const RotatedRow& row, const RotationTable& table)
      : q_(row.q),
        table_(table),
        low_(table.low_cos(row.x)),
        high_(table.high_cos(row.x)),
        scale_(_mm512_set1_ps(row.scale * kLog2E)) {}

  // Dimensions m .. m + 15.
  __m512 At(int64_t m) const {
    const int64_t d = table_.head_dim();
    const __m512 low_cos = _mm512_loadu_ps(low_ + m), low_sin = _mm512_loadu_ps(low_ + d + m);
    const __m512 high_cos = _mm512_loadu_ps(high_ + m), high_sin = _mm512_loadu_ps(high_ + d + m);
    const __m512 c = _mm512_fnmadd_ps(high_sin, low_sin, _mm512_mul_ps(high_cos, low_cos));
    const __m512 s = _mm512_fmadd_ps(high_cos, low_sin, _mm512_mul_ps(high_sin, low_cos));
    const __m512 turned =
        _mm512_fmadd_ps(Partner::Of(q_, m, table_), s, _mm512_mul_ps(_mm512_loadu_ps(q_ + m), c));
    return _mm512_mul_ps(turned, scale_);
  }

 private:
  const float* q_;
  const RotationTable& table_;
  const float* low_;  // cosines, then sines
  const float* high_;
  __m512 scale_;
};

template <typename T>
inline void Prefetch(const T* numbers, int64_t n) {
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
  for (int64_t i = 0; i < n; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(numbers + i), _MM_HINT_T0);
  }
}

// queries[pair][row] = R(x) q, scaled, of rows [0, n_rows), a multiple of kLanes: those behind rows.size()
// are zero.
template <typename Partner>
void PackWith(std::span<const RotatedRow> rows, int64_t n_rows, const RotationTable& table,
              uint32_t* queries) {
  const int64_t d = table.head_dim();
  for (int64_t begin = 0; begin < n_rows; begin += kLanes) {
    const int64_t n = std::clamp<int64_t>(static_cast<int64_t>(rows.size()) - begin, 0, kLanes);
    for (int64_t p = 0; p < PackedPairs(d); p += kLanes) {
      const bool whole = 2 * p + kLanes < d;  // else half of the pairs are behind the head's
      __m512i block[kLanes];
      for (int64_t lane = 0; lane < n; ++lane) {
        const auto row = static_cast<std::size_t>(begin + lane);
        // Queries of a head are far apart, and mostly in no near cache.
        constexpr std::size_t kAhead = 6;
        if (p == 0 && row + kAhead < rows.size()) Prefetch(rows[row + kAhead].q, d);
        const Rotation<Partner> rotation(rows[row], table);
        const __m512 low = rotation.At(2 * p);
        const __m512 high = whole ? rotation.At(2 * p + kLanes) : _mm512_setzero_ps();
        block[lane] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      }
      std::fill(block + n, block + kLanes, _mm512_setzero_si512());
      Transpose(block);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) _mm512_storeu_si512(queries + (p + i) * n_rows + begin, block[i]);
    }
  }
}

inline void Pack(std::span<const RotatedRow> rows, int64_t n_rows, const RotationTable& table,
                 uint32_t* queries) {
  const auto pack = table.layout() == PairLayout::kInterleaved ? PackWith<PartnerBeside>
                    : table.n_pairs() % kLanes == 0            ? PackWith<PartnerInHalf>
                                                               : PackWith<AnyPartner>;
  pack(rows, n_rows, table, queries);
}

// The rows of a tile: kV vectors of them, those behind rows.size() zero. Who derives from it multiplies.
template <int kV>
class Bf16Tile {
 public:
  static constexpr int64_t kRows = kV * kLanes;

  // Floats of workspace.
  static constexpr int64_t Workspace(int64_t head_dim) {
    return kRows * (head_dim + kKeys + kKeys / 2 + PackedPairs(head_dim));
  }

  Bf16Tile(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
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
    Pack(rows, kRows, table, queries_);
  }

 protected:
  // Whether some row does not see all keys [begin, end).
  bool Hides(int64_t begin, int64_t end) const {
    bool hides = false;
    for (const RotatedRow& row : rows_) hides |= row.key_begin > begin || row.key_end < end;
    return hides;
  }

  // Of keys key .. key + kN - 1.
  template <int kN>
  HWY_INLINE void Mask(int64_t key, __m512 (&sums)[kN][kV]) const {
    const __m512 hidden = _mm512_set1_ps(-kInfinity);
    for (int v = 0; v < kV; ++v) {
      const __m512i first = _mm512_loadu_si512(first_ + v * kLanes);
      const __m512i last = _mm512_loadu_si512(last_ + v * kLanes);
#pragma GCC unroll 16
      for (int b = 0; b < kN; ++b) {
        const __m512i at = _mm512_set1_epi32(static_cast<int32_t>(key + b));
        const __mmask16 seen = _mm512_cmple_epi32_mask(first, at) & _mm512_cmpgt_epi32_mask(last, at);
        sums[b][v] = _mm512_mask_mov_ps(hidden, seen, sums[b][v]);
      }
    }
  }

  // Asks for the rows' states, which Merge will change: those of many queries fill more than the second
  // cache.
  void FetchStates() const {
    for (const RotatedRow& row : rows_) {
      for (int64_t m = 0; m < d_ + 2; m += kLanes) {
        _mm_prefetch(reinterpret_cast<const char*>(row.state + m), _MM_HINT_T1);
      }
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
  // In the workspace.
  float* values_;                 // [d][kRows]
  float* logits_;                 // [kKeys][kRows]
  uint32_t* weights_;             // [kKeys / 2][kRows], a pair of keys each
  uint32_t* queries_;             // [PackedPairs(d)][kRows], a pair of dimensions each
  int64_t begin_, end_;           // the keys that any row sees
  alignas(64) float max_[kRows];  // what logits are taken from
  alignas(64) float sum_[kRows];

 private:
  alignas(64) int32_t first_[kRows];
  alignas(64) int32_t last_[kRows];
};

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
