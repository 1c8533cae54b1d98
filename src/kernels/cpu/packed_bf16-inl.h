// Rows of a packed page (kernels/packed_bf16.h) in Highway. Included once for each target.

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/kv_limits.h"
#include "kernels/packed_bf16.h"

#if defined(LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_
#undef LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_
#else
#define LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace longheads::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A vector's words, and the double words that they are two of each.
using Words = hn::ScalableTag<uint16_t>;
using HalfTogether = hn::CappedTag<uint16_t, kPackedTogether / 2>;
template <typename D>
using PairsOf = hn::Repartition<uint32_t, D>;
constexpr int64_t kWordLanes = HWY_MAX_BYTES / sizeof(uint16_t);
static_assert(kPackedTogether % kWordLanes == 0 && kMaxRun % kPackedTogether == 0);

// The words of the fourth row, from those of the three that hold it.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE V FourthRow(D words, V first, V second, V third) {
  V fourth = hn::And(hn::ShiftRight<kCodeMoved>(first), hn::Set(words, kPackedCode));
  fourth = hn::OrAnd(fourth, hn::ShiftRight<kUpperMoved>(second), hn::Set(words, kUpperMantissa));
  fourth = hn::OrAnd(fourth, hn::ShiftRight<kLowerMoved>(third), hn::Set(words, kLowerMantissa));
  return hn::OrAnd(fourth, hn::ShiftLeft<kSignMoved>(third), hn::Set(words, kPackedSign));
}

// step(words, at, low, high) for whole vectors of the words of a row of n numbers, `words` being their tag:
// words at, ... hold numbers low, ... and high, ... in turn.
template <typename Step>
HWY_INLINE void ForEachWords(int64_t n, const Step& step) {
  int64_t i = 0;
  for (; i + kPackedTogether <= n; i += kPackedTogether) {
    for (int64_t at = 0; at < kPackedTogether; at += kWordLanes) {
      step(Words(), i + at, i + at / 2, i + (kPackedTogether + at) / 2);
    }
  }
  if (i < n) step(HalfTogether(), i, i, i + kPackedTogether / 4);
}

// Words of numbers as they lie in a row, from two places of it in turn.
template <typename D>
HWY_INLINE hn::Vec<D> InTurn(D words, const uint16_t* low, const uint16_t* high) {
  const PairsOf<D> pairs;
  const hn::Half<D> half;
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(pairs, hn::LoadU(half, high)));
  return hn::BitCast(words, hn::Or(hn::PromoteTo(pairs, hn::LoadU(half, low)), upper));
}

// What the codes of rows that lie together count from: of K's, the columns' bases in the order of words.
struct KeyBases {
  const uint16_t* bases;
  template <typename D>
  HWY_INLINE hn::Vec<D> Of(D words, int64_t /*row*/, int64_t at) const {
    return hn::LoadU(words, bases + at);
  }
  HWY_INLINE int64_t Channel(int64_t /*row*/, int64_t i) const { return i; }
};
// Of V's: the largest exponents of all channels, K's before them, and the first row's channel.
struct ValueBases {
  const uint8_t* largest;
  int64_t channel;
  template <typename D>
  HWY_INLINE hn::Vec<D> Of(D words, int64_t row, int64_t /*at*/) const {
    return hn::Set(words, static_cast<uint16_t>(PackedBase(largest[channel + row])));
  }
  HWY_INLINE int64_t Channel(int64_t row, int64_t /*i*/) const { return channel + row; }
};

// The bases of K's columns in the order of words, by their largest exponents.
HWY_INLINE void BasesInTurn(const uint8_t* largest, int64_t head_dim, uint16_t* in_turn) {
  uint16_t bases[kMaxHeadDim];
  for (int64_t m = 0; m < head_dim; ++m) bases[m] = static_cast<uint16_t>(PackedBase(largest[m]));
  ForEachWords(head_dim, [&](auto words, int64_t at, int64_t low, int64_t high) HWY_ATTR {
    hn::StoreU(InTurn(words, bases + low, bases + high), words, in_turn + at);
  });
}

// Rows that lie together, of n numbers each, as bfloat16: those that stand apart excepted.
template <typename Bases>
HWY_INLINE void UnpackRows(const uint16_t* from, int64_t n, const Bases& bases, uint16_t* to) {
  ForEachWords(n, [&](auto words, int64_t at, int64_t low, int64_t high) HWY_ATTR {
    const PairsOf<decltype(words)> pairs;
    const hn::Half<decltype(words)> half;
    const auto give = [&](int64_t row, auto word) HWY_ATTR {
      const auto coded = hn::And(word, hn::Set(words, kPackedBits));
      const auto two = hn::BitCast(pairs, hn::Add(coded, bases.Of(words, row, at)));
      hn::StoreU(hn::TruncateTo(half, two), half, to + row * n + low);
      hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(two)), half, to + row * n + high);
    };
    const auto first = hn::LoadU(words, from + at);
    const auto second = hn::LoadU(words, from + n + at);
    const auto third = hn::LoadU(words, from + 2 * n + at);
    give(0, first);
    give(1, second);
    give(2, third);
    give(3, FourthRow(words, first, second, third));
  });
}

}  // namespace
}  // namespace longheads::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
