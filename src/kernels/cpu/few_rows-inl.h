// Where attention's kernels of few rows find a run's keys and values, whatever they lie in, in Highway: rows
// of numbers that are read side by side, each widened to float32 as it is multiplied. Included once for each
// target.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/attention.h"
#include "kernels/cpu/packed_bf16-inl.h"
#include "kernels/kv_limits.h"
#include "kernels/packed_bf16.h"

#if defined(LONGHEADS_KERNELS_CPU_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHEADS_KERNELS_CPU_FEW_ROWS_INL_H_
#undef LONGHEADS_KERNELS_CPU_FEW_ROWS_INL_H_
#else
#define LONGHEADS_KERNELS_CPU_FEW_ROWS_INL_H_
#endif

// Nothing for the scalar target, as those who include it have it.
#if HWY_TARGET != HWY_STATIC_TARGET
HWY_BEFORE_NAMESPACE();
namespace longheads::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

constexpr Tag kTag;
constexpr int64_t kLanes = HWY_MAX_BYTES / sizeof(float);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kFew = 4;  // rows that share each key as it is read
constexpr int64_t kFewStride = kMaxRun + 16;

HWY_INLINE Vec Widened(const float* p) { return hn::LoadU(kTag, p); }
HWY_INLINE Vec Widened(const BFloat16* p) {
  const auto half = hn::LoadU(hn::Rebind<uint16_t, Tag>(), &p->bits);
  return hn::BitCast(kTag, hn::ShiftLeft<16>(hn::PromoteTo(hn::Rebind<uint32_t, Tag>(), half)));
}

HWY_INLINE Vec Widened(const int8_t* p) {
  const auto bytes = hn::LoadU(hn::Rebind<int8_t, Tag>(), p);
  return hn::ConvertTo(kTag, hn::PromoteTo(hn::RebindToSigned<Tag>(), bytes));
}

constexpr bool kFetchesIntoSecond = kLanes >= 16;
constexpr uintptr_t kFetchedAhead = kFetchesIntoSecond ? 8192 : 4096;  // bytes

// Numbers that are read in the order of their addresses up to `end`, and where what comes then begins, 0
// where that is not known.
struct Reading {
  uintptr_t end = UINTPTR_MAX;
  uintptr_t next = 0;

  Reading() = default;
  Reading(const void* last, const void* what_next)
      : end(reinterpret_cast<uintptr_t>(last)), next(reinterpret_cast<uintptr_t>(what_next)) {}

  // What is read so many bytes after p; 0 where that is not known.
  HWY_INLINE uintptr_t After(const void* p, uintptr_t ahead) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p) + ahead;
    if (at < end) return at;
    return next == 0 ? 0 : at + (next - end);
  }
};

HWY_INLINE void FetchLine(uintptr_t at) {
  __builtin_prefetch(reinterpret_cast<const char*>(at), /*rw=*/0, /*locality=*/kFetchesIntoSecond ? 2 : 3);
}

// Asks for what is read kFetchedAhead bytes after n elements at p: the hardware's own prefetching ends at
// multiples of 4096, and one token's arithmetic is too short to hide what that costs. To ask for what is not
// there is no fault. On AVX-512 into the second cache, and earlier: lines came a quarter to a third faster so
// (docs/performance.md).
template <typename T>
HWY_INLINE void FetchAhead(const T* p, int64_t n, const Reading& reading = {}) {
  constexpr uintptr_t kLine = 64;
  const uintptr_t begin = reading.After(p, kFetchedAhead);
  if (begin == 0) return;
  const uintptr_t end = begin + static_cast<uintptr_t>(n) * sizeof(T);
  for (uintptr_t at = begin; at < end; at += kLine) FetchLine(at);
}

// kN rows of numbers that are read side by side.
template <typename T, int kN>
struct RowsOf {
  static constexpr int kCount = kN;
  const T* numbers;
  int64_t stride;
  uintptr_t ahead = 0;  // where numbers lie that are to be asked for when these are read; 0: none

  const float* RowsFor(const float* plain) const { return plain; }

  // add(i, row, element) of elements i, ... of all rows, i being ascending multiples of kLanes below n; of
  // half the rows at a time where AVX2 has no registers for the sums of all.
  template <int kSums, typename Add>
  HWY_INLINE void ForEach(int64_t n, const Add& add) const {
    if constexpr (kLanes == 8 && kN * kSums > 12) {
      const uintptr_t then = ahead == 0 ? 0 : ahead + sizeof(T) * static_cast<uintptr_t>(kN / 2 * stride);
      RowsOf<T, kN / 2>{numbers, stride, ahead}.template ForEach<kSums>(n, add);
      RowsOf<T, kN / 2>{numbers + kN / 2 * stride, stride, then}.template ForEach<kSums>(
          n, [&](int64_t i, int row, Vec element) HWY_ATTR { add(i, kN / 2 + row, element); });
      return;
    }
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t i = 0; i < n; i += kLanes) {
      if (ahead != 0 && i % kLine == 0) {
        HWY_UNROLL(4)
        for (int b = 0; b < kN; ++b) FetchLine(ahead + sizeof(T) * static_cast<uintptr_t>(b * stride + i));
      }
      HWY_UNROLL(4)
      for (int b = 0; b < kN; ++b) add(i, b, Widened(numbers + b * stride + i));
    }
  }
};

// Bits of the upper word of each pair.
template <typename D>
HWY_INLINE auto Kept(uint16_t bits) {
  return hn::Set(PairsOf<D>(), uint32_t{bits} << 16);
}

// The numbers of even words, and of odd ones. A fourth row's words have no bits of others.
template <typename D>
HWY_INLINE auto Even(D /*tag*/, hn::Vec<D> word, int row) {
  const PairsOf<D> pairs;
  const auto bits = hn::ShiftLeft<16>(hn::BitCast(pairs, word));
  return hn::BitCast(hn::RebindToFloat<PairsOf<D>>(), row == 3 ? bits : hn::And(bits, Kept<D>(kPackedBits)));
}
template <typename D>
HWY_INLINE auto Odd(D /*tag*/, hn::Vec<D> word, int row) {
  const PairsOf<D> pairs;
  const auto bits = hn::And(hn::BitCast(pairs, word), Kept<D>(row == 3 ? uint16_t{0xffff} : kPackedBits));
  return hn::BitCast(hn::RebindToFloat<PairsOf<D>>(), bits);
}

// Rows of a packed page that lie together, of which no number stands apart: widened in registers, each the
// smaller by the power of two that its channel's codes count from.
struct PackedRowsOf {
  static constexpr int kCount = kPackedRows;
  const uint16_t* words;
  int64_t stride;   // words of a row
  uintptr_t ahead;  // where the words lie that are to be asked for when these are read
  const float* rows;

  // What they are multiplied with, in the place of what unpacked ones are.
  const float* RowsFor(const float* /*plain*/) const { return rows; }

  template <int kSums, typename Add>
  HWY_INLINE void ForEach(int64_t n, const Add& add) const {
    constexpr int kVectors = static_cast<int>(kPackedTogether / kWordLanes);
    // Rows that take turns, a vector of numbers each: all where AVX2 has just registers enough for their
    // sums, so that what they are multiplied with is read once for all. With AVX-512's registers the order is
    // no matter.
    constexpr int kInTurn = kLanes == 8 && kPackedRows * kSums <= 12 ? kPackedRows : 1;
    int64_t i = 0;
    for (; i + kPackedTogether <= n; i += kPackedTogether) {
      HWY_UNROLL(3)
      for (int row = 0; row < kPackedRows - 1; ++row) {
        FetchLine(ahead + sizeof(*words) * static_cast<uintptr_t>(row * stride + i));
      }
      hn::Vec<Words> fourth[kVectors];
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = i + v * kWordLanes;
        fourth[v] = FourthRow(Words(), Load(Words(), 0, at), Load(Words(), 1, at), Load(Words(), 2, at));
      }
      const auto word = [&](int row, int v) HWY_ATTR {
        return row == 3 ? fourth[v] : Load(Words(), row, i + v * kWordLanes);
      };
      HWY_UNROLL(4)
      for (int first = 0; first < kPackedRows; first += kInTurn) {
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) {
          HWY_UNROLL(4)
          for (int row = first; row < first + kInTurn; ++row) {
            add(i + v * kLanes, row, Even(Words(), word(row, v), row));
          }
        }
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) {
          HWY_UNROLL(4)
          for (int row = first; row < first + kInTurn; ++row) {
            add(i + kPackedTogether / 2 + v * kLanes, row, Odd(Words(), word(row, v), row));
          }
        }
      }
    }
    if (i == n) return;
    constexpr HalfTogether kHalf;
    const auto first = Load(kHalf, 0, i), second = Load(kHalf, 1, i), third = Load(kHalf, 2, i);
    const hn::Vec<HalfTogether> word[] = {first, second, third, FourthRow(kHalf, first, second, third)};
    const auto give = [&](int row, auto even, auto odd) HWY_ATTR {
      if constexpr (kLanes == kPackedTogether / 4) {
        add(i, row, even);
        add(i + kLanes, row, odd);
      } else {
        add(i, row, hn::Combine(kTag, odd, even));
      }
    };
    HWY_UNROLL(4)
    for (int row = 0; row < kPackedRows; ++row) {
      give(row, Even(kHalf, word[row], row), Odd(kHalf, word[row], row));
    }
  }

 private:
  template <typename D>
  HWY_INLINE hn::Vec<D> Load(D tag, int64_t row, int64_t at) const {
    return hn::LoadU(tag, words + row * stride + at);
  }
};

// Where the kernels of few rows find a run's keys and values; what is read later is asked for meanwhile. Of a
// page as it is: where they lie.
template <typename T>
class NumbersOf {
 public:
  // Weights of values are read in multiples of so many.
  static constexpr int64_t kWhole = kLanes;

  NumbersOf(const KeyRunOf<T>& run, float* /*workspace*/)
      : run_(run), k_(run.k + run.n_keys * run.head_dim, run.v != nullptr ? run.v : run.next) {
    if (run.v != nullptr) v_ = Reading(run.v + run.head_dim * run.v_stride, run.next);
  }

  // Before keys are read, rows of queries [n_rows, head_dim]; before values are, the weights of tokens
  // [from, to), n_rows of kFewStride; and behind that what the products gave, [n_rows, head_dim].
  void TakeQueries(const float* /*q*/, int /*n_rows*/) {}
  void TakeWeights(const float* /*weights*/, int /*n_rows*/, int64_t /*from*/, int64_t /*to*/) {}
  void Finish(float* /*values*/, int /*n_rows*/) const {}

  // product(j, keys) of all keys from `begin` to `end`, and perhaps of some beside them: keys j, ... by rows
  // of [head_dim].
  template <typename Product>
  HWY_INLINE void ForEachKeys(int64_t begin, int64_t end, const Product& product) {
    const int64_t d = run_.head_dim;
    int64_t j = begin;
    for (; j + kTogether <= end; j += kTogether) {
      FetchAhead(run_.k + j * d, kTogether * d, k_);
      product(j, RowsOf<T, kTogether>{run_.k + j * d, d});
    }
    for (; j < end; ++j) product(j, RowsOf<T, 1>{run_.k + j * d, d});
  }
  // product(m, values) of all channels m: four rows of tokens [from, to), multiples of kWhole.
  template <typename Product>
  HWY_INLINE void ForEachValues(int64_t from, int64_t to, const Product& product) {
    for (int64_t m = 0; m < run_.head_dim; m += kTogether) {
      const T* const values = run_.v + m * run_.v_stride + from;
      product(m, RowsOf<T, kTogether>{values, run_.v_stride, v_.After(values, kFetchedAhead)});
    }
  }

 private:
  static constexpr int kTogether = 4;
  const KeyRunOf<T>& run_;
  Reading k_, v_;
};

// Of a packed page. What a channel's codes count from is a power of two, and so no number is multiplied with
// it: of K it goes to the queries, of V to what comes out, which changes no bit where nothing is too large or
// too small for that. Rows that lie beside a number that stands apart, and all where something is, are
// unpacked in the first cache.
class PackedNumbers {
 public:
  static constexpr int64_t kWhole = kPackedTogether;
  static constexpr int64_t Workspace(int64_t head_dim) {  // floats
    return kFew * (head_dim + kFewStride) + head_dim + kPackedRows * std::max(head_dim, kMaxRun) / 2;
  }
  PackedNumbers(const PackedKeyRun& run, float* workspace)
      : places_(run.head_dim),
        words_(reinterpret_cast<const uint16_t*>(run.page.words)),
        largest_(reinterpret_cast<const uint8_t*>(run.page.rest)),
        apart_(reinterpret_cast<const uint32_t*>(run.page.rest + places_.apart_at())),
        apart_bits_(reinterpret_cast<const uint16_t*>(run.page.rest + places_.bits_at())),
        reading_(run.page.words + places_.words_bytes, run.next),
        q_(workspace),
        weights_(q_ + kFew * run.head_dim),
        factors_(weights_ + kFew * kFewStride),
        unpacked_(reinterpret_cast<uint16_t*>(factors_ + run.head_dim)) {
    std::memcpy(&n_apart_, run.page.rest + places_.count_at(), sizeof(n_apart_));
  }

  void TakeQueries(const float* q, int n_rows) {
    const int64_t d = places_.head_dim;
    folds_ = AreWithin(largest_, 1, kMostFactor);
    if (!folds_) return;
    auto finite = hn::FirstN(kTag, static_cast<std::size_t>(kLanes));
    for (int64_t m = 0; m < d; m += kLanes) {
      const Vec factor = PowerOf(largest_ + m, 0);
      for (int64_t r = 0; r < n_rows; ++r) {
        const Vec folded = hn::Mul(hn::LoadU(kTag, q + r * d + m), factor);
        finite = hn::And(finite, hn::Lt(hn::Abs(folded), hn::Set(kTag, kInfinity)));
        hn::StoreU(folded, kTag, q_ + r * d + m);
      }
    }
    folds_ = hn::AllTrue(kTag, finite);
  }
  void TakeWeights(const float* weights, int n_rows, int64_t from, int64_t to) {
    const int64_t d = places_.head_dim;
    folds_ = AreWithin(largest_ + d, kLeastOfValues, kMostOfValues);
    if (!folds_) return;
    for (int64_t m = 0; m < d; m += kLanes) {
      hn::StoreU(PowerOf(largest_ + d + m, -kWeightsFactor), kTag, factors_ + m);
    }
    const Vec factor = hn::Set(kTag, 0x1p100f);
    static_assert(kWeightsFactor == 100);
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t j = r * kFewStride + from; j < r * kFewStride + to; j += kLanes) {
        hn::StoreU(hn::Mul(hn::LoadU(kTag, weights + j), factor), kTag, weights_ + j);
      }
    }
  }
  void Finish(float* values, int n_rows) const {
    const int64_t d = places_.head_dim;
    if (!folds_) return;
    for (int64_t m = 0; m < d; m += kLanes) {
      for (int64_t r = 0; r < n_rows; ++r) {
        float* const at = values + r * d + m;
        hn::StoreU(hn::Mul(hn::LoadU(kTag, at), hn::LoadU(kTag, factors_ + m)), kTag, at);
      }
    }
  }

  template <typename Product>
  HWY_INLINE void ForEachKeys(int64_t begin, int64_t end, const Product& product) {
    const int64_t d = places_.head_dim;
    const auto unpack = [&](const uint16_t* from, int64_t) HWY_ATTR {
      uint16_t in_turn[kMaxHeadDim];
      BasesInTurn(largest_, d, in_turn);
      UnpackRows(from, d, KeyBases{in_turn}, unpacked_);
    };
    ForEachRows({0, d}, begin / kPackedRows * kPackedRows, end, 0, q_, unpack, product);
  }
  template <typename Product>
  HWY_INLINE void ForEachValues(int64_t from, int64_t /*to*/, const Product& product) {
    const int64_t d = places_.head_dim;
    const auto unpack = [&](const uint16_t* words, int64_t m) HWY_ATTR {
      UnpackRows(words, kMaxRun, ValueBases{largest_, d + m}, unpacked_);
      for (int64_t b = 0; b < kPackedRows; ++b) factors_[m + b] = 1;
    };
    ForEachRows({d * kMaxRun, kMaxRun}, 0, d, from, weights_ + from, unpack, product);
  }

 private:
  // Powers of two. Of queries up to the largest that is a float; of values those with which no sum that
  // counts is too small to be exact, and weights, which are 1 at most, are that much larger: so their
  // products with values, which are below 2^-111, are not too small either.
  static constexpr int kBelowLargest = 15;
  static constexpr int kMostFactor = 127;
  static constexpr int kWeightsFactor = 100;
  static constexpr int kLeastOfValues = 64;
  static constexpr int kMostOfValues = 127 + kWeightsFactor;

  // Whether what the codes of head_dim channels count from are such powers.
  bool AreWithin(const uint8_t* largest, int least, int most) const {
    const hn::CappedTag<uint8_t, kPackedDims> tag;
    const auto lower = hn::Set(tag, static_cast<uint8_t>(least + kBelowLargest));
    const auto upper = hn::Set(tag, static_cast<uint8_t>(most + kBelowLargest));
    for (int64_t m = 0; m < places_.head_dim; m += kPackedDims) {
      const auto exponent = hn::LoadU(tag, largest + m);
      if (!hn::AllTrue(tag, hn::Eq(hn::Min(hn::Max(exponent, lower), upper), exponent))) return false;
    }
    return true;
  }
  // Of kLanes channels, times 2^more.
  static HWY_INLINE Vec PowerOf(const uint8_t* largest, int more) {
    const hn::RebindToSigned<Tag> integers;
    const auto exponent = hn::PromoteTo(integers, hn::LoadU(hn::Rebind<uint8_t, Tag>(), largest));
    const auto more_than_it = hn::Set(integers, 127 - kBelowLargest + more);
    return hn::BitCast(kTag, hn::ShiftLeft<23>(hn::Add(exponent, more_than_it)));
  }

  // Rows of n numbers each, of which the first begins with number `first`.
  struct Rows {
    int64_t first;
    int64_t n;
    int64_t At(int64_t row) const { return first + row * n; }
  };

  // product(row, numbers) of rows [begin, end), some beside the last perhaps, as they lie together: of their
  // numbers from the one at `from` on. `folded` is what packed ones are multiplied with; unpack(words, row)
  // unpacks some.
  template <typename Unpack, typename Product>
  HWY_INLINE void ForEachRows(const Rows& rows, int64_t begin, int64_t end, int64_t from, const float* folded,
                              const Unpack& unpack, const Product& product) {
    const int64_t n = rows.n;
    for (int64_t row = begin; row < end; row += kPackedRows) {
      const int64_t whole_end = folds_ ? std::min(end, BesideApart(rows, row)) : row;
      for (; row < whole_end; row += kPackedRows) {
        const uint16_t* const words = words_ + PackedWords(rows.At(row)) + from;
        const uintptr_t ahead = reading_.After(words, kFetchedAhead);
        product(row, PackedRowsOf{words, n, ahead != 0 ? ahead : reinterpret_cast<uintptr_t>(words), folded});
      }
      if (row >= end) return;
      const uint16_t* const words = words_ + PackedWords(rows.At(row));
      FetchAhead(words, PackedWords(kPackedRows * n), reading_);
      unpack(words, row);
      BesideApart(rows, row);
      for (; at_ < n_apart_ && apart_[at_] < rows.At(row + kPackedRows); ++at_) {
        unpacked_[apart_[at_] - rows.At(row)] = apart_bits_[at_];
      }
      const auto* const unpacked = reinterpret_cast<const BFloat16*>(unpacked_);
      product(row, RowsOf<BFloat16, kPackedRows>{unpacked + from, n});
    }
  }

  // The first rows from `row` on that lie beside a number that stands apart, as such stand in order; far
  // behind the last where none do.
  int64_t BesideApart(const Rows& rows, int64_t row) {
    while (at_ < n_apart_ && apart_[at_] < rows.At(row)) ++at_;
    if (at_ == n_apart_) return std::numeric_limits<int64_t>::max();
    return (apart_[at_] - rows.first) / rows.n / kPackedRows * kPackedRows;
  }

  PackedBf16Places places_;
  const uint16_t* words_;
  const uint8_t* largest_;  // exponents
  const uint32_t* apart_;
  const uint16_t* apart_bits_;
  uint32_t n_apart_ = 0;
  uint32_t at_ = 0;
  Reading reading_;
  bool folds_ = false;  // keys, and then values
  // In the workspace.
  float* q_;            // [kFew, head_dim]
  float* weights_;      // [kFew, kFewStride]
  float* factors_;      // [head_dim], of what comes out
  uint16_t* unpacked_;  // [kPackedRows, head_dim or kMaxRun]
};

template <typename T>
NumbersOf<T> NumbersFrom(const KeyRunOf<T>& run, float* workspace) {
  return {run, workspace};
}
inline PackedNumbers NumbersFrom(const PackedKeyRun& run, float* workspace) { return {run, workspace}; }

}  // namespace
}  // namespace longheads::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // per-target include guard
