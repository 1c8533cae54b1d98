// De-quantisation and matrix-vector products in Highway, for every vector of 4, 8 or 16 floats. Included once
// for each target; kQuantised of the target's namespace is its table.
//
// De-quantised values equal ref's bits: scale times integer has at most 24 significant bits in every type (11
// of a float16, 6 to 8 of a sub-scale, 4 to 8 of the integer), so only the addition of a minimum rounds,
// fused or not.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/quantised.h"

#if defined(LONGHEADS_KERNELS_CPU_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHEADS_KERNELS_CPU_QUANTISED_INL_H_
#undef LONGHEADS_KERNELS_CPU_QUANTISED_INL_H_
#else
#define LONGHEADS_KERNELS_CPU_QUANTISED_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace longheads {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using VF = hn::Vec<F>;
constexpr int kLanes = hn::MaxLanes(F());

using VI = hn::Vec<hn::RebindToSigned<F>>;

// Every Block type below has kBlock elements in kBytes bytes, kGroups groups of kGroup elements that share a
// scale (and a minimum, where kHasMin), and, after Decode(bytes of the block):
//   Ordered(g, v)       vector v of group g's integers plus kBias, in the order of the elements
//   Lanes(g, v)         the same integers as gemv wants them: where and how large they are is the type's
//   affair Arrange(x, to)      static: x [kGroup] for the lanes of Lanes(), divided by what those are too
//   large Scale(g), Min(g)    in every lane Add(g, products, x_sum, sum)  sum + Scale(g) * products + Min(g)
//   * x_sum; x_sum is zero in even lanes

// Four consecutive float16 at p, widened; all eight bytes must be readable.
HWY_INLINE hn::Vec<hn::Full128<float>> WidenFourHalves(const uint8_t* p) {
  const hn::Full128<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
}

// kLanes bytes as integers.
HWY_INLINE VI LoadUnsigned(const uint8_t* p) {
  return hn::PromoteTo(hn::RebindToSigned<F>(), hn::LoadU(hn::Rebind<uint8_t, F>(), p));
}
HWY_INLINE VI LoadSigned(const uint8_t* p) {
  const hn::Rebind<int8_t, F> d;
  return hn::PromoteTo(hn::RebindToSigned<F>(), hn::LoadU(d, reinterpret_cast<const int8_t*>(p)));
}

// A block of 32 elements: float16 scale, float16 minimum where there is one, what else the type has, then the
// integers.
template <bool kMin, int kBiasOfType>
struct Block32 {
  static constexpr int kBlock = 32, kGroups = 1, kGroup = 32, kVectors = kGroup / kLanes;
  static constexpr bool kHasMin = kMin;
  static constexpr int kBias = kBiasOfType, kRowsTogether = 4;

  const uint8_t* b;

  HWY_INLINE void Decode(const uint8_t* bytes) { b = bytes; }
  HWY_INLINE VF Scale(int) const { return hn::Set(F(), hn::GetLane(WidenFourHalves(b))); }
  HWY_INLINE VF Min(int) const { return hn::Set(F(), hn::GetLane(hn::DupOdd(WidenFourHalves(b)))); }
  HWY_INLINE VF Add(int g, VF products, VF x_sum, VF sum) const {
    if constexpr (!kMin) return hn::MulAdd(Scale(g), products, sum);
    // Scale and minimum take turns in the lanes: one conversion and one permutation serve both.
    const hn::Rebind<hwy::float16_t, F> dh;
    float both;  // as a float, because compilers then broadcast it from memory
    std::memcpy(&both, b, sizeof both);
    const hn::Repartition<float, decltype(dh)> d32;
    const VF pairs = hn::PromoteTo(F(), hn::BitCast(dh, hn::Set(d32, both)));
    return hn::MulAdd(pairs, x_sum, hn::MulAdd(hn::DupEven(pairs), products, sum));
  }
};

// Copies x for types whose Lanes() are in order.
template <int kGroup>
HWY_INLINE void ArrangeInOrder(const float* x, float* to) {
  for (int i = 0; i < kGroup; i += kLanes) hn::StoreU(hn::LoadU(F(), x + i), F(), to + i);
}

// Sixteen bytes of nibbles, element i in the low half of byte i and element i + 16 in its high half, meet x
// without being shifted or widened: each 128 bits of a vector hold a copy of the sixteen bytes as four words,
// of which one nibble per word stays behind a mask, and x is divided by the power of two that its place is
// worth. Eight (byte of the word, nibble) pairs in this order over the vectors' 128-bit parts cover the
// block.
struct NibblePlaces {
  static constexpr int kParts = kLanes / 4, kVectors = 8 / kParts;

  HWY_ALIGN uint32_t masks[kVectors][kLanes];
  uint8_t elements[32];  // of the block, in the order of the lanes
  float factors[32];     // for x of those

  constexpr NibblePlaces() : masks(), elements(), factors() {
    for (int place = 0; place < 8; ++place) {
      const int v = place / kParts, byte = place / 2, high = place % 2;
      // The words of the last vector are shifted down, or its topmost nibble would be a sign.
      const int bit = byte * 8 + high * 4 - (v == kVectors - 1 ? 4 : 0);
      for (int word = 0; word < 4; ++word) {
        masks[v][place % kParts * 4 + word] = 15u << bit;
        elements[place * 4 + word] = static_cast<uint8_t>(high * 16 + word * 4 + byte);
        factors[place * 4 + word] = 1.0f / static_cast<float>(1 << bit);
      }
    }
  }
};
constexpr NibblePlaces kNibblePlaces;

// kHead: bytes before the nibbles.
template <bool kMin, int kBiasOfType, int kHead>
struct NibbleBlock : Block32<kMin, kBiasOfType> {
  static constexpr int kBytes = kHead + 16;

  HWY_INLINE VF Ordered(int, int v) const {
    const hn::RebindToSigned<F> di;
    const VI both = LoadUnsigned(this->b + kHead + v * kLanes % 16);
    const VI nibble = v * kLanes < 16 ? hn::And(both, hn::Set(di, 15)) : hn::ShiftRight<4>(both);
    return hn::ConvertTo(F(), nibble);
  }
  HWY_INLINE VF Lanes(int, int v) const {
    const hn::RebindToUnsigned<F> du;
    auto words = hn::BitCast(du, hn::LoadDup128(hn::Repartition<uint8_t, F>(), this->b + kHead));
    if (v == NibblePlaces::kVectors - 1) words = hn::ShiftRight<4>(words);
    words = hn::And(words, hn::Load(du, kNibblePlaces.masks[v]));
    return hn::ConvertTo(F(), hn::BitCast(hn::RebindToSigned<F>(), words));
  }
  static HWY_INLINE void Arrange(const float* x, float* to) {
    for (int i = 0; i < 32; ++i) to[i] = x[kNibblePlaces.elements[i]] * kNibblePlaces.factors[i];
  }
};

// As the nibbles, with the fifth bit of every element, ascending in the 32 bits before them.
template <bool kMin, int kBiasOfType, int kHead>
struct FiveBitBlock : Block32<kMin, kBiasOfType> {
  static constexpr int kBytes = kHead + 16;

  HWY_INLINE VF Ordered(int, int v) const {
    const hn::RebindToSigned<F> di;
    uint32_t bits;
    std::memcpy(&bits, this->b + kHead - 4, sizeof bits);
    const VI fifth_bits = hn::Set(di, static_cast<int32_t>(bits >> v * kLanes));
    const VI lane_bit = hn::Shl(hn::Set(di, 1), hn::Iota(di, 0));
    const VI fifth = hn::IfThenElseZero(hn::TestBit(fifth_bits, lane_bit), hn::Set(di, 16));
    const VI both = LoadUnsigned(this->b + kHead + v * kLanes % 16);
    const VI nibble = v * kLanes < 16 ? hn::And(both, hn::Set(di, 15)) : hn::ShiftRight<4>(both);
    return hn::ConvertTo(F(), hn::Or(nibble, fifth));
  }
  HWY_INLINE VF Lanes(int g, int v) const { return Ordered(g, v); }
  static HWY_INLINE void Arrange(const float* x, float* to) { ArrangeInOrder<32>(x, to); }
};

using Q4_0 = NibbleBlock</*kMin=*/false, /*kBiasOfType=*/8, /*kHead=*/2>;
using Q4_1 = NibbleBlock</*kMin=*/true, /*kBiasOfType=*/0, /*kHead=*/4>;
using Q5_0 = FiveBitBlock</*kMin=*/false, /*kBiasOfType=*/16, /*kHead=*/6>;
using Q5_1 = FiveBitBlock</*kMin=*/true, /*kBiasOfType=*/0, /*kHead=*/8>;

struct Q8_0 : Block32</*kMin=*/false, /*kBiasOfType=*/0> {
  static constexpr int kBytes = 34, kRowsTogether = 1;
  HWY_INLINE VF Ordered(int, int v) const { return hn::ConvertTo(F(), LoadSigned(b + 2 + v * kLanes)); }
  HWY_INLINE VF Lanes(int g, int v) const { return Ordered(g, v); }
  static HWY_INLINE void Arrange(const float* x, float* to) { ArrangeInOrder<32>(x, to); }
};

// A block of 256 elements, whose integers are first brought into the order of the elements, as bytes.
template <int kGroupCount, bool kMin>
struct Block256 {
  static constexpr int kBlock = 256, kGroups = kGroupCount, kGroup = kBlock / kGroups;
  static constexpr int kVectors = kGroup / kLanes;
  static constexpr bool kHasMin = kMin;
  static constexpr int kBias = 0, kRowsTogether = 4;

  HWY_ALIGN float scales[kGroups];
  HWY_ALIGN float mins[kMin ? kGroups : 1];
  HWY_ALIGN uint8_t bytes[kBlock];  // signed

  HWY_INLINE VF Scale(int g) const { return hn::Set(F(), scales[g]); }
  HWY_INLINE VF Min(int g) const { return hn::Set(F(), mins[g]); }
  HWY_INLINE VF Add(int g, VF products, VF x_sum, VF sum) const {
    sum = hn::MulAdd(Scale(g), products, sum);
    return kMin ? hn::MulAdd(Min(g), x_sum, sum) : sum;
  }
  HWY_INLINE VF Ordered(int g, int v) const {
    return hn::ConvertTo(F(), LoadSigned(bytes + g * kGroup + v * kLanes));
  }
  HWY_INLINE VF Lanes(int g, int v) const { return Ordered(g, v); }
  static HWY_INLINE void Arrange(const float* x, float* to) { ArrangeInOrder<kGroup>(x, to); }
};

template <class V>
HWY_INLINE V LowNibbles(V packed) {
  return hn::And(packed, hn::Set(hn::DFromV<V>(), 15));
}
template <class V>
HWY_INLINE V HighNibbles(V packed) {
  return hn::ShiftRight<4>(packed);
}

// Q4_K and Q5_K: d * scale and -(dmin * min) of eight groups, from the four bytes of d and dmin
// and the twelve that hold 6-bit scales (bytes 0-3 whole, the last four from 8-11 low and 0-3 top) and minima
// (bytes 4-7 whole, the last four from 8-11 high and 4-7 top).
HWY_INLINE void DecodeSixBitScales(const uint8_t* b, float* scales, float* mins) {
  const auto halves = WidenFourHalves(b);
  uint32_t a, m, rest;
  std::memcpy(&a, b + 4, sizeof a);
  std::memcpy(&m, b + 8, sizeof m);
  std::memcpy(&rest, b + 12, sizeof rest);
  const uint32_t packed[4] = {a & 0x3F3F3F3F, (rest & 0x0F0F0F0F) | (a >> 2 & 0x30303030), m & 0x3F3F3F3F,
                              (rest >> 4 & 0x0F0F0F0F) | (m >> 2 & 0x30303030)};
  uint8_t values[16];
  std::memcpy(values, packed, sizeof values);
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<uint8_t, decltype(d)> db;
  const hn::RebindToSigned<decltype(d)> di;
  const auto d_scale = hn::Set(d, hn::GetLane(halves)), d_min = hn::Set(d, hn::GetLane(hn::DupOdd(halves)));
  for (size_t i = 0; i < 8; i += hn::MaxLanes(d)) {
    const auto scale = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, values + i)));
    const auto min = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, values + 8 + i)));
    hn::Store(hn::Mul(d_scale, scale), d, scales + i);
    hn::Store(hn::Neg(hn::Mul(d_min, min)), d, mins + i);
  }
}

// Thirty-two bytes where the target has them: a column run of the 256-element types.
using B32 = hn::CappedTag<uint8_t, 32>;
constexpr int kB32 = hn::MaxLanes(B32());

struct Q4_K : Block256<8, true> {
  static constexpr int kBytes = 144;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B32 d;
    DecodeSixBitScales(b, scales, mins);
    for (int pair = 0; pair < 4; ++pair) {
      for (int i = 0; i < 32; i += kB32) {
        const auto packed = hn::LoadU(d, b + 16 + pair * 32 + i);
        hn::Store(LowNibbles(packed), d, bytes + pair * 64 + i);
        hn::Store(HighNibbles(packed), d, bytes + pair * 64 + 32 + i);
      }
    }
  }
};

struct Q5_K : Block256<8, true> {
  static constexpr int kBytes = 176;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B32 d;
    DecodeSixBitScales(b, scales, mins);
    const auto sixteen = hn::Set(d, 16);
    for (int i = 0; i < 32; i += kB32) {
      const auto fifth = hn::LoadU(d, b + 16 + i);  // bit j: of element i in group j
      for (int pair = 0; pair < 4; ++pair) {
        const auto packed = hn::LoadU(d, b + 48 + pair * 32 + i);
        const auto low_bit = hn::Set(d, static_cast<uint8_t>(1 << (2 * pair)));
        const auto high_bit = hn::Set(d, static_cast<uint8_t>(2 << (2 * pair)));
        const auto low_fifth = hn::IfThenElseZero(hn::TestBit(fifth, low_bit), sixteen);
        const auto high_fifth = hn::IfThenElseZero(hn::TestBit(fifth, high_bit), sixteen);
        hn::Store(hn::Or(LowNibbles(packed), low_fifth), d, bytes + pair * 64 + i);
        hn::Store(hn::Or(HighNibbles(packed), high_fifth), d, bytes + pair * 64 + 32 + i);
      }
    }
  }
};

struct Q6_K : Block256<16, false> {
  static constexpr int kBytes = 210;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B32 d;
    const auto top = hn::Set(d, 0x30), bias = hn::Set(d, 32);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 32; i += kB32) {
        const auto left = hn::LoadU(d, b + half * 64 + i), right = hn::LoadU(d, b + half * 64 + 32 + i);
        const auto tops = hn::LoadU(d, b + 128 + half * 32 + i);  // two bits for each quarter, ascending
        uint8_t* to = bytes + half * 128 + i;
        const auto quarter = [&](auto nibbles, auto tops_in_place, int offset) HWY_ATTR {
          hn::Store(hn::Sub(hn::Or(nibbles, hn::And(tops_in_place, top)), bias), d, to + offset);
        };
        quarter(LowNibbles(left), hn::ShiftLeft<4>(tops), 0);
        quarter(LowNibbles(right), hn::ShiftLeft<2>(tops), 32);
        quarter(HighNibbles(left), tops, 64);
        quarter(HighNibbles(right), hn::ShiftRight<2>(tops), 96);
      }
    }
    uint8_t half_d[8] = {};
    std::memcpy(half_d, b + 208, 2);  // the block ends here: no eight bytes to read
    const F df;
    const VF d_scale = hn::Set(df, hn::GetLane(WidenFourHalves(half_d)));
    for (int i = 0; i < 16; i += kLanes) {
      hn::Store(hn::Mul(d_scale, hn::ConvertTo(df, LoadSigned(b + 192 + i))), df, scales + i);
    }
  }
};

template <class Block>
void DequantizeBlocks(const uint8_t* src, int64_t n, float* dst) {
  const F d;
  for (int64_t i = 0; i < n; i += Block::kBlock, src += Block::kBytes) {
    Block block;
    block.Decode(src);
    for (int g = 0; g < Block::kGroups; ++g, dst += Block::kGroup) {
      for (int v = 0; v < Block::kVectors; ++v) {
        // Without its bias the integer is still exact.
        VF value = hn::Mul(block.Scale(g), hn::Sub(block.Ordered(g, v), hn::Set(d, Block::kBias)));
        if constexpr (Block::kHasMin) value = hn::Add(value, block.Min(g));
        hn::StoreU(value, d, dst + v * kLanes);
      }
    }
  }
}

// How far ahead of each row's current block weights are fetched. Rows of a few hundred bytes are too short
// for the processor to notice four streams by itself; 4 KiB did best among 1-8 KiB on Zen 3.
constexpr int64_t kPrefetchBytes = 4096;

HWY_INLINE void PrefetchWeights(const uint8_t* w, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) hwy::Prefetch(w + kPrefetchBytes + line);
}

// x as DotRows reads it: for each group x arranged for the type's lanes, then, where the type has use for it,
// the group's sum of x, spread over the odd lanes of one vector.
template <class Block>
struct ArrangedX {
  static constexpr bool kHasSum = Block::kHasMin || Block::kBias != 0;
  static constexpr int kStride = Block::kGroup + (kHasSum ? kLanes : 0);
  static constexpr int64_t kColumns = 8192;  // of one pass over the rows; a multiple of every block

  HWY_ALIGN float x[kColumns / Block::kGroup * kStride];

  void Fill(const float* from, int64_t k) {
    const F d;
    for (float* to = x; k > 0; k -= Block::kGroup, from += Block::kGroup, to += kStride) {
      Block::Arrange(from, to);
      if constexpr (kHasSum) {
        VF sum = hn::LoadU(d, from);
        for (int v = 1; v < Block::kVectors; ++v) sum = hn::Add(sum, hn::LoadU(d, from + v * kLanes));
        sum = hn::OddEven(hn::Add(sum, hn::Shuffle2301(sum)), hn::Zero(d));
        hn::StoreU(sum, d, to + Block::kGroup);
      }
    }
  }
};

// y[r] for kRows rows at once, which share the loads of x. Each row's sum is built in the same order whatever
// kRows is: a group's products first, then its scale; the minimum times the group's sum of x. Rows alternate
// within a group, so that no row's chain of additions fills the processor's queues.
template <class Block, int kRows>
HWY_INLINE void DotRows(const uint8_t* w, int64_t row_bytes, int64_t k, const ArrangedX<Block>& arranged,
                        float* y) {
  const F d;
  const float* x = arranged.x;
  VF sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
  for (int64_t begin = 0; begin < k; begin += Block::kBlock, w += Block::kBytes) {
    Block blocks[kRows];
    for (int r = 0; r < kRows; ++r) {
      blocks[r].Decode(w + r * row_bytes);
      PrefetchWeights(w + r * row_bytes, Block::kBytes);
    }
    for (int g = 0; g < Block::kGroups; ++g, x += ArrangedX<Block>::kStride) {
      VF products[kRows];
      for (int v = 0; v < Block::kVectors; ++v) {
        const VF xv = hn::Load(d, x + v * kLanes);
        for (int r = 0; r < kRows; ++r) {
          const VF q = blocks[r].Lanes(g, v);
          products[r] = v == 0 ? hn::Mul(q, xv) : hn::MulAdd(q, xv, products[r]);
        }
      }
      const VF x_sum = ArrangedX<Block>::kHasSum ? hn::Load(d, x + Block::kGroup) : hn::Zero(d);
      for (int r = 0; r < kRows; ++r) {
        if constexpr (Block::kBias != 0) {
          products[r] = hn::NegMulAdd(hn::Set(d, Block::kBias), x_sum, products[r]);
        }
        sums[r] = blocks[r].Add(g, products[r], x_sum, sums[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] += hn::GetLane(hn::SumOfLanes(d, sums[r]));
}

// kLanes stored floats, widened to float32.
struct F32 {
  static constexpr int kBytes = 4;
  static HWY_INLINE VF Load(const uint8_t* p) { return hn::LoadU(F(), reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static HWY_INLINE VF Load(const uint8_t* p) {
    const hn::Rebind<hwy::float16_t, F> dh;
    return hn::PromoteTo(F(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static HWY_INLINE VF Load(const uint8_t* p) {
    const hn::Rebind<uint16_t, F> dh;
    const auto bits = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p));
    return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<F>(), bits)));
  }
};

template <class Float>
void DequantizeFloats(const uint8_t* src, int64_t n, float* dst) {
  const F d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(Float::Load(src + i * Float::kBytes), d, dst + i);
  if (i == n) return;
  uint8_t padded[kLanes * Float::kBytes] = {};
  float values[kLanes];
  std::memcpy(padded, src + i * Float::kBytes, static_cast<size_t>((n - i) * Float::kBytes));
  hn::StoreU(Float::Load(padded), d, values);
  std::memcpy(dst + i, values, static_cast<size_t>(n - i) * sizeof(float));
}

// One row: memory is the limit. Two sums hide the latency of the additions; past the last whole vector both
// sides are padded with zeros.
template <class Float>
HWY_INLINE float DotFloats(const uint8_t* w, int64_t k, const float* x) {
  const F d;
  VF even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
    const uint8_t* p = w + i * Float::kBytes;
    PrefetchWeights(p, 2 * kLanes * Float::kBytes);
    even = hn::MulAdd(Float::Load(p), hn::LoadU(d, x + i), even);
    odd = hn::MulAdd(Float::Load(p + kLanes * Float::kBytes), hn::LoadU(d, x + i + kLanes), odd);
  }
  for (; i < k; i += kLanes) {
    const int64_t n = HWY_MIN(k - i, int64_t{kLanes});
    float padded_x[kLanes] = {};
    uint8_t padded_w[kLanes * Float::kBytes] = {};
    std::memcpy(padded_x, x + i, static_cast<size_t>(n) * sizeof(float));
    std::memcpy(padded_w, w + i * Float::kBytes, static_cast<size_t>(n * Float::kBytes));
    even = hn::MulAdd(Float::Load(padded_w), hn::LoadU(d, padded_x), even);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

template <class Block>
void GemvBlocks(const uint8_t* w, int64_t n_rows, int64_t row_bytes, int64_t k, const float* x, float* y) {
  constexpr int kRows = Block::kRowsTogether;
  std::fill(y, y + n_rows, 0.0f);
  ArrangedX<Block> arranged;
  for (int64_t begin = 0; begin < k; begin += arranged.kColumns) {
    const int64_t columns = HWY_MIN(k - begin, arranged.kColumns);
    const uint8_t* p = w + begin / Block::kBlock * Block::kBytes;
    arranged.Fill(x + begin, columns);
    int64_t r = 0;
    for (; r + kRows <= n_rows; r += kRows) {
      DotRows<Block, kRows>(p + r * row_bytes, row_bytes, columns, arranged, y + r);
    }
    for (; r < n_rows; ++r) DotRows<Block, 1>(p + r * row_bytes, row_bytes, columns, arranged, y + r);
  }
}

template <class Float>
void GemvFloats(const uint8_t* w, int64_t n_rows, int64_t row_bytes, int64_t k, const float* x, float* y) {
  for (int64_t r = 0; r < n_rows; ++r) y[r] = DotFloats<Float>(w + r * row_bytes, k, x);
}

void Dequantize(DType type, const std::byte* src, int64_t n, float* dst) {
  using Run = void (*)(const uint8_t* src, int64_t n, float* dst);
  static constexpr Run kRuns[kDTypes] = {
      DequantizeFloats<F32>,  DequantizeFloats<F16>,  DequantizeFloats<BF16>, DequantizeBlocks<Q4_0>,
      DequantizeBlocks<Q4_1>, DequantizeBlocks<Q5_0>, DequantizeBlocks<Q5_1>, DequantizeBlocks<Q8_0>,
      DequantizeBlocks<Q4_K>, DequantizeBlocks<Q5_K>, DequantizeBlocks<Q6_K>};
  LH_CHECK(n >= 0 && n % Info(type).block == 0);
  kRuns[static_cast<int>(type)](reinterpret_cast<const uint8_t*>(src), n, dst);
}

void Gemv(DType type, const std::byte* w, int64_t row_begin, int64_t row_end, int64_t k, const float* x,
          float* y) {
  using Run =
      void (*)(const uint8_t* w, int64_t n_rows, int64_t row_bytes, int64_t k, const float* x, float* y);
  static constexpr Run kRuns[kDTypes] = {GemvFloats<F32>,  GemvFloats<F16>,  GemvFloats<BF16>,
                                         GemvBlocks<Q4_0>, GemvBlocks<Q4_1>, GemvBlocks<Q5_0>,
                                         GemvBlocks<Q5_1>, GemvBlocks<Q8_0>, GemvBlocks<Q4_K>,
                                         GemvBlocks<Q5_K>, GemvBlocks<Q6_K>};
  const DTypeInfo& info = Info(type);
  LH_CHECK(k >= 0 && k % info.block == 0);
  const int64_t row_bytes = k / info.block * info.block_bytes;
  kRuns[static_cast<int>(type)](reinterpret_cast<const uint8_t*>(w) + row_begin * row_bytes,
                                row_end - row_begin, row_bytes, k, x, y);
}

constexpr QuantisedKernels kQuantised = {.dequantize = Dequantize, .gemv = Gemv};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace longheads
HWY_AFTER_NAMESPACE();

#endif  // LONGHEADS_KERNELS_CPU_QUANTISED_INL_H_
