// De-quantisation and matrix-vector products in Highway, for every vector of 4, 8 or 16 floats. Included once
// for each target; kQuantised of the target's namespace is its table.
//
// Every block type is first brought to one shape: signed bytes in the order of the elements, and for each
// group a scale and perhaps a minimum. What follows is then shared by all types.
//
// Compile with -ffp-contract=off: a fused scale * q + min is not the value that ggml defines.

#include <cstdint>
#include <cstring>

#include "base/check.h"
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

// Sixteen bytes on every target: what packed nibbles of 32 elements fill.
using B16 = hn::Full128<uint8_t>;

// One block of a type. scale[g] and min[g] are factors[g] and factors[kGroups + g] (min where kHasMin).
template <int kBlockSize, int kGroupCount, bool kMin>
struct Decoded {
  static constexpr int kBlock = kBlockSize, kGroups = kGroupCount, kGroup = kBlock / kGroups;
  static constexpr bool kHasMin = kMin;

  const int8_t* q;  // [kBlock]: into `bytes`, or into the weights themselves
  HWY_ALIGN float factors[HWY_MAX(4, 2 * kGroups)];
  HWY_ALIGN uint8_t bytes[kBlock];

  void UseBytes() { q = reinterpret_cast<const int8_t*>(bytes); }
};

// Four consecutive float16 at p, widened; all eight bytes must be readable.
HWY_INLINE void WidenFourHalves(const uint8_t* p, float* to) {
  const hn::Full128<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p))), d, to);
}

// Nibbles packed as (i, i + 16) -> bytes 0..31.
template <class V>
HWY_INLINE V LowNibbles(V packed) {
  return hn::And(packed, hn::Set(hn::DFromV<V>(), 15));
}
template <class V>
HWY_INLINE V HighNibbles(V packed) {
  return hn::ShiftRight<4>(packed);
}

// 16 where bit i of `bits` is set, for i in [first, first + 16).
template <int kFirst>
HWY_INLINE hn::Vec<B16> FifthBits(const uint8_t* bits) {
  const B16 d;
  HWY_ALIGN static constexpr uint8_t kSource[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  HWY_ALIGN static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  uint32_t word;
  std::memcpy(&word, bits, sizeof word);
  const auto all = hn::BitCast(d, hn::Set(hn::Full128<uint32_t>(), word >> kFirst));
  const auto spread = hn::TableLookupBytes(all, hn::Load(d, kSource));
  return hn::IfThenElseZero(hn::TestBit(spread, hn::Load(d, kBit)), hn::Set(d, 16));
}

struct Q4_0 : Decoded<32, 1, false> {
  static constexpr int kBytes = 18;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B16 d;
    const auto packed = hn::LoadU(d, b + 2), bias = hn::Set(d, 8);
    WidenFourHalves(b, factors);
    hn::Store(hn::Sub(LowNibbles(packed), bias), d, bytes);
    hn::Store(hn::Sub(HighNibbles(packed), bias), d, bytes + 16);
    UseBytes();
  }
};

struct Q4_1 : Decoded<32, 1, true> {
  static constexpr int kBytes = 20;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B16 d;
    const auto packed = hn::LoadU(d, b + 4);
    WidenFourHalves(b, factors);
    hn::Store(LowNibbles(packed), d, bytes);
    hn::Store(HighNibbles(packed), d, bytes + 16);
    UseBytes();
  }
};

struct Q5_0 : Decoded<32, 1, false> {
  static constexpr int kBytes = 22;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B16 d;
    const auto packed = hn::LoadU(d, b + 6), bias = hn::Set(d, 16);
    WidenFourHalves(b, factors);
    hn::Store(hn::Sub(hn::Or(LowNibbles(packed), FifthBits<0>(b + 2)), bias), d, bytes);
    hn::Store(hn::Sub(hn::Or(HighNibbles(packed), FifthBits<16>(b + 2)), bias), d, bytes + 16);
    UseBytes();
  }
};

struct Q5_1 : Decoded<32, 1, true> {
  static constexpr int kBytes = 24;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B16 d;
    const auto packed = hn::LoadU(d, b + 8);
    WidenFourHalves(b, factors);
    hn::Store(hn::Or(LowNibbles(packed), FifthBits<0>(b + 4)), d, bytes);
    hn::Store(hn::Or(HighNibbles(packed), FifthBits<16>(b + 4)), d, bytes + 16);
    UseBytes();
  }
};

struct Q8_0 : Decoded<32, 1, false> {
  static constexpr int kBytes = 34;
  HWY_INLINE void Decode(const uint8_t* b) {
    WidenFourHalves(b, factors);
    q = reinterpret_cast<const int8_t*>(b + 2);
  }
};

// factors of Q4_K and Q5_K: d * scale and -(dmin * min) of eight groups, from the four bytes of d and dmin
// and the twelve that hold 6-bit scales (bytes 0-3 whole, the last four from 8-11 low and 0-3 top) and minima
// (bytes 4-7 whole, the last four from 8-11 high and 4-7 top).
HWY_INLINE void DecodeSixBitScales(const uint8_t* b, float* factors) {
  float halves[4];
  WidenFourHalves(b, halves);
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
  for (size_t i = 0; i < 8; i += hn::MaxLanes(d)) {
    const auto scale = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, values + i)));
    const auto min = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, values + 8 + i)));
    hn::Store(hn::Mul(hn::Set(d, halves[0]), scale), d, factors + i);
    hn::Store(hn::Neg(hn::Mul(hn::Set(d, halves[1]), min)), d, factors + 8 + i);
  }
}

// Thirty-two bytes where the target has them: a column run of the 256-element types.
using B32 = hn::CappedTag<uint8_t, 32>;
constexpr int kB32 = hn::MaxLanes(B32());

struct Q4_K : Decoded<256, 8, true> {
  static constexpr int kBytes = 144;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B32 d;
    DecodeSixBitScales(b, factors);
    for (int pair = 0; pair < 4; ++pair) {
      for (int i = 0; i < 32; i += kB32) {
        const auto packed = hn::LoadU(d, b + 16 + pair * 32 + i);
        hn::Store(LowNibbles(packed), d, bytes + pair * 64 + i);
        hn::Store(HighNibbles(packed), d, bytes + pair * 64 + 32 + i);
      }
    }
    UseBytes();
  }
};

struct Q5_K : Decoded<256, 8, true> {
  static constexpr int kBytes = 176;
  HWY_INLINE void Decode(const uint8_t* b) {
    const B32 d;
    DecodeSixBitScales(b, factors);
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
    UseBytes();
  }
};

struct Q6_K : Decoded<256, 16, false> {
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
    float widened[4];
    WidenFourHalves(half_d, widened);
    const F df;
    const hn::Rebind<int8_t, F> db;
    for (int i = 0; i < 16; i += kLanes) {
      const auto scales =
          hn::PromoteTo(hn::RebindToSigned<F>(), hn::LoadU(db, reinterpret_cast<const int8_t*>(b + 192 + i)));
      hn::Store(hn::Mul(hn::Set(df, widened[0]), hn::ConvertTo(df, scales)), df, factors + i);
    }
    UseBytes();
  }
};

// kLanes elements of a decoded block as floats, not yet scaled.
HWY_INLINE VF LoadQ(const int8_t* q) {
  const hn::Rebind<int8_t, F> db;
  return hn::ConvertTo(F(), hn::PromoteTo(hn::RebindToSigned<F>(), hn::LoadU(db, q)));
}

template <class Block>
void DequantizeBlocks(const uint8_t* src, int64_t n, float* dst) {
  const F d;
  for (int64_t i = 0; i < n; i += Block::kBlock, src += Block::kBytes) {
    Block block;
    block.Decode(src);
    for (int g = 0; g < Block::kGroups; ++g) {
      const VF scale = hn::Set(d, block.factors[g]);
      const VF min = hn::Set(d, Block::kHasMin ? block.factors[Block::kGroups + g] : 0.0f);
      for (int j = g * Block::kGroup; j < (g + 1) * Block::kGroup; j += kLanes) {
        const VF scaled = hn::Mul(scale, LoadQ(block.q + j));
        hn::StoreU(Block::kHasMin ? hn::Add(scaled, min) : scaled, d, dst + i + j);
      }
    }
  }
}

// y[r] for kRows rows at once, which share the loads of x. Each row's sum is built in the same order whatever
// kRows is: a group's products first, then its scale; the minimum times the group's sum of x.
template <class Block, int kRows>
HWY_INLINE void DotRows(const uint8_t* w, int64_t row_bytes, int64_t k, const float* x, float* y) {
  const F d;
  constexpr int kVectors = Block::kGroup / kLanes;
  Block blocks[kRows];
  VF sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
  for (int64_t begin = 0; begin < k; begin += Block::kBlock, w += Block::kBytes) {
    for (int r = 0; r < kRows; ++r) blocks[r].Decode(w + r * row_bytes);
    for (int g = 0; g < Block::kGroups; ++g, x += Block::kGroup) {
      VF xs[kVectors];
      for (int v = 0; v < kVectors; ++v) xs[v] = hn::LoadU(d, x + v * kLanes);
      VF x_sum = xs[0];
      if constexpr (Block::kHasMin) {
        for (int v = 1; v < kVectors; ++v) x_sum = hn::Add(x_sum, xs[v]);
      }
      for (int r = 0; r < kRows; ++r) {
        const int8_t* q = blocks[r].q + g * Block::kGroup;
        VF products = hn::Mul(LoadQ(q), xs[0]);
        for (int v = 1; v < kVectors; ++v) products = hn::MulAdd(LoadQ(q + v * kLanes), xs[v], products);
        sums[r] = hn::MulAdd(hn::Set(d, blocks[r].factors[g]), products, sums[r]);
        if constexpr (Block::kHasMin) {
          sums[r] = hn::MulAdd(hn::Set(d, blocks[r].factors[Block::kGroups + g]), x_sum, sums[r]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] = hn::GetLane(hn::SumOfLanes(d, sums[r]));
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

// As DotRows above; two sums a row hide the latency of their additions. Past the last whole vector both sides
// are padded with zeros.
template <class Float, int kRows>
HWY_INLINE void DotFloatRows(const uint8_t* w, int64_t row_bytes, int64_t k, const float* x, float* y) {
  const F d;
  VF even[kRows], odd[kRows];
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
    const VF x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* p = w + r * row_bytes + i * Float::kBytes;
      even[r] = hn::MulAdd(Float::Load(p), x0, even[r]);
      odd[r] = hn::MulAdd(Float::Load(p + kLanes * Float::kBytes), x1, odd[r]);
    }
  }
  for (; i < k; i += kLanes) {
    const int64_t n = HWY_MIN(k - i, int64_t{kLanes});
    float padded_x[kLanes] = {};
    std::memcpy(padded_x, x + i, static_cast<size_t>(n) * sizeof(float));
    for (int r = 0; r < kRows; ++r) {
      uint8_t padded[kLanes * Float::kBytes] = {};
      std::memcpy(padded, w + r * row_bytes + i * Float::kBytes, static_cast<size_t>(n * Float::kBytes));
      even[r] = hn::MulAdd(Float::Load(padded), hn::LoadU(d, padded_x), even[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[r], odd[r])));
}

template <class Block>
void GemvBlocks(const uint8_t* w, int64_t n_rows, int64_t row_bytes, int64_t k, const float* x, float* y) {
  int64_t r = 0;
  for (; r + 4 <= n_rows; r += 4) DotRows<Block, 4>(w + r * row_bytes, row_bytes, k, x, y + r);
  for (; r < n_rows; ++r) DotRows<Block, 1>(w + r * row_bytes, row_bytes, k, x, y + r);
}

template <class Float>
void GemvFloats(const uint8_t* w, int64_t n_rows, int64_t row_bytes, int64_t k, const float* x, float* y) {
  int64_t r = 0;
  for (; r + 4 <= n_rows; r += 4) DotFloatRows<Float, 4>(w + r * row_bytes, row_bytes, k, x, y + r);
  for (; r < n_rows; ++r) DotFloatRows<Float, 1>(w + r * row_bytes, row_bytes, k, x, y + r);
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
