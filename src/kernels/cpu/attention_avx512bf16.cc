// kernels/attention.h's attend_bf16 by products of pairs of bfloat16 (VDPBF16PS): twice the work of float32's
// for an instruction, on pages as they are.
//
// What is broadcast against all rows is a pair: two dimensions of a key, or two keys of a dimension of the
// values, which lie side by side in K row-major and V transposed.
#define LONGHEADS_TARGETS "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"
#include "kernels/cpu/attention_bf16-inl.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

constexpr int64_t kTile = 48;  // rows

// Keys, or dimensions of values, that meet kV vectors of rows at once: with three 24 sums, which with the
// rows and a broadcast pair take 28 of 32 registers; with one as many as hide the latency of an instruction.
template <int kV>
constexpr int kAtOnce = kV == 1 ? 16 : 8;

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
                         __m512 (&sums)[kAtOnce<kV>][kV]) {
  for (int64_t i = 0; i < n; ++i) {
    __m512i rows[kV];
#pragma GCC unroll 3
    for (int v = 0; v < kV; ++v) rows[v] = _mm512_loadu_si512(t + (i * kV + v) * kLanes);
#pragma GCC unroll 16
    for (int b = 0; b < kAtOnce<kV>; ++b) {
      const __m512i pair = Pair(a + b * stride + 2 * i);
#pragma GCC unroll 3
      for (int v = 0; v < kV; ++v) sums[b][v] = DotPairs(sums[b][v], pair, rows[v]);
    }
  }
}

template <int kV>
class PairTile : public Bf16Tile<kV> {
  using Base = Bf16Tile<kV>;
  using Base::begin_, Base::d_, Base::end_, Base::kRows, Base::logits_, Base::max_, Base::pages_,
      Base::queries_, Base::sum_, Base::values_, Base::weights_;
  static constexpr int64_t kBlock = kAtOnce<kV>;  // keys, multiplied at once

 public:
  using Base::Base;

  void Run() {
    // By the keys' places in their page: what a row's sums are made of does not depend on where a tile
    // begins.
    for (int64_t from = begin_ / kKeys * kKeys; from < end_; from += kKeys) {
      if (from + kKeys >= end_) this->FetchStates();
      Attend(from, std::max(begin_, from), std::min(end_, from + kKeys));
    }
    this->Merge();
  }

 private:
  // Keys [begin, end), all behind `from`, the first of a piece of a page: logits, softmax, values.
  void Attend(int64_t from, int64_t begin, int64_t end) {
    const auto [k, v] = pages_.pages[static_cast<std::size_t>(from / kMaxRun)];
    const int64_t at = from % kMaxRun;
    // Whole blocks: what no row sees weighs nothing.
    const int64_t first = (begin - from) / kBlock * kBlock;
    const int64_t last = (end - from + kBlock - 1) / kBlock * kBlock;
    Logits(k + at * d_, v + at, from, first, last);
    Softmax(first, last);
    AddValues(v + at, first, last);
  }

  // weights_[pair of keys][row] = exp(logit - max) of keys [first, last) of the piece, and sum_ with them.
  void Softmax(int64_t first, int64_t last) {
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
        _mm512_storeu_si512(weights_ + j / 2 * kRows + v * kLanes, RoundedPairs(p0, p1));
      }
      _mm512_storeu_ps(sum_ + v * kLanes, _mm512_add_ps(even, odd));
    }
  }

  HWY_INLINE void LoadMax(__m512 (&max)[kV]) const {
    for (int v = 0; v < kV; ++v) max[v] = _mm512_loadu_ps(max_ + v * kLanes);
  }

  // Takes the logits of keys from + j .. from + j + kN - 1 and raises max with them; where keys hide, -inf
  // stands for those that a row does not see.
  template <int kN>
  HWY_INLINE void Keep(int64_t from, int64_t j, bool hides, __m512 (&sums)[kN][kV], __m512 (&max)[kV]) {
    if (hides) this->Mask(from + j, sums);
#pragma GCC unroll 16
    for (int b = 0; b < kN; ++b) {
#pragma GCC unroll 3
      for (int v = 0; v < kV; ++v) {
        max[v] = _mm512_max_ps(max[v], sums[b][v]);
        _mm512_storeu_ps(logits_ + (j + b) * kRows + v * kLanes, sums[b][v]);
      }
    }
  }

  // max_, and with it rescale_, what earlier sums are to be multiplied with.
  HWY_INLINE void Raise(const __m512 (&max)[kV]) {
    for (int v = 0; v < kV; ++v) {
      const __m512 before = _mm512_loadu_ps(max_ + v * kLanes);
      _mm512_storeu_ps(rescale_ + v * kLanes, Exp2(_mm512_sub_ps(before, max[v])));
      _mm512_storeu_ps(max_ + v * kLanes, max[v]);
    }
  }

  // Of keys from + [first, last), whole blocks; k and values are those of `from`. Asks for the values
  // meanwhile: they come from memory where few queries share a page, a few lines of each of d rows that lie
  // apart, which the processor does not foresee as it does keys.
  void Logits(const BFloat16* k, const BFloat16* values, int64_t from, int64_t first, int64_t last) {
    const int64_t rows_a_block = d_ * kBlock / kKeys;
    const bool hides = this->Hides(from + first, from + last);
    __m512 max[kV];
    LoadMax(max);
    for (int64_t j = first; j < last; j += kBlock) {
      __m512 sums[kBlock][kV];
#pragma GCC unroll 16
      for (int b = 0; b < kBlock; ++b) {
#pragma GCC unroll 3
        for (int v = 0; v < kV; ++v) sums[b][v] = _mm512_setzero_ps();
      }
      for (int64_t m = 0; m < rows_a_block; ++m) {
        Prefetch(values + (j / kBlock * rows_a_block + m) * kMaxRun + first, last - first);
      }
      PairProducts<kV>(k + j * d_, d_, queries_, d_ / 2, sums);
      Keep(from, j, hides, sums, max);
    }
    Raise(max);
  }

  // values_ * rescale_ + weights_ of the same keys * v; v as k.
  void AddValues(const BFloat16* v, int64_t first, int64_t last) {
    for (int64_t m = 0; m < d_; m += kBlock) {
      __m512 sums[kBlock][kV];
      float* const to = values_ + m * kRows;
#pragma GCC unroll 16
      for (int b = 0; b < kBlock; ++b) {
#pragma GCC unroll 3
        for (int i = 0; i < kV; ++i) {
          sums[b][i] = _mm512_mul_ps(_mm512_loadu_ps(to + b * kRows + i * kLanes),
                                     _mm512_loadu_ps(rescale_ + i * kLanes));
        }
      }
      PairProducts<kV>(v + m * kMaxRun + first, kMaxRun, weights_ + first / 2 * kRows, (last - first) / 2,
                       sums);
#pragma GCC unroll 16
      for (int b = 0; b < kBlock; ++b) {
#pragma GCC unroll 3
        for (int i = 0; i < kV; ++i) _mm512_storeu_ps(to + b * kRows + i * kLanes, sums[b][i]);
      }
    }
  }

  alignas(64) float rescale_[kRows];
};

static_assert(PairTile<3>::Workspace(kMaxHeadDim) <= AttendWorkspace(kTile, kMaxHeadDim));

void AttendPages(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
                 float* workspace) {
  while (!rows.empty()) {
    const auto n = std::min<std::size_t>(kTile, rows.size());
    const std::span<const RotatedRow> tile = rows.first(n);
    if (n > 2 * kLanes) {
      PairTile<3>(tile, pages, table, workspace).Run();
    } else if (n > kLanes) {
      PairTile<2>(tile, pages, table, workspace).Run();
    } else {
      PairTile<1>(tile, pages, table, workspace).Run();
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
