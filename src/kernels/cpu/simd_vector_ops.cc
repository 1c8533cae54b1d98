// kernels/vector_ops.h in Highway: one source for AVX2 and AVX-512.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_vector_ops.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target, as Highway asks.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/attention.h"
#include "kernels/cpu/packed_bf16-inl.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/ref/vector_ops.h"
#include "kernels/score_cut.h"
#include "kernels/vector_ops.h"

// Nothing for the scalar target that Highway insists on: ref/ is below AVX2.
#if HWY_TARGET != HWY_STATIC_TARGET
HWY_BEFORE_NAMESPACE();
namespace longheads::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

constexpr Tag kTag;
constexpr int64_t kLanes = HWY_MAX_BYTES / sizeof(float);

void RmsNorm(const float* x, const float* weight, float epsilon, int64_t n, float* out) {
  Vec even = hn::Zero(kTag);
  Vec odd = hn::Zero(kTag);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec a = hn::LoadU(kTag, x + i);
    const Vec b = hn::LoadU(kTag, x + i + kLanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  float squares = hn::GetLane(hn::SumOfLanes(kTag, hn::Add(even, odd)));
  for (; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + epsilon);
  const Vec factor = hn::Set(kTag, scale);
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const Vec scaled = hn::Mul(hn::LoadU(kTag, x + i), factor);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(kTag, weight + i)), kTag, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void Add(float* a, const float* b, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(kTag, a + i), hn::LoadU(kTag, b + i)), kTag, a + i);
  }
  for (; i < n; ++i) a[i] += b[i];
}

void SiluMul(float* gate, const float* up, int64_t n) {
  const Vec one = hn::Set(kTag, 1.0f);
  const auto block = [&](const float* g, const float* u, float* out) HWY_ATTR {
    const Vec x = hn::LoadU(kTag, g);
    const Vec silu = hn::Div(x, hn::Add(one, hn::Exp(kTag, hn::Neg(x))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(kTag, u)), kTag, out);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) block(gate + i, up + i, gate + i);
  if (i < n) {
    HWY_ALIGN float g[kLanes] = {};
    HWY_ALIGN float u[kLanes] = {};
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(n - i);
    std::memcpy(g, gate + i, bytes);
    std::memcpy(u, up + i, bytes);
    block(g, u, g);
    std::memcpy(gate + i, g, bytes);
  }
}

void ToBf16(const float* in, int64_t n, BFloat16* out) {
  const hn::Rebind<uint32_t, Tag> bits_tag;
  const hn::Rebind<uint16_t, Tag> half_tag;
  const auto half = hn::Set(bits_tag, 0x7fff);
  const auto one = hn::Set(bits_tag, 1);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec value = hn::LoadU(kTag, in + i);
    const auto bits = hn::BitCast(bits_tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(half, odd)));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 0x40));
    const auto nan = hn::RebindMask(bits_tag, hn::IsNaN(value));
    hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(hn::RebindToSigned<decltype(bits_tag)>(),
                                                  hn::IfThenElse(nan, quiet, rounded))),
               half_tag, &out[i].bits);
  }
  ref::kVectorOps.to_bf16(in + i, n - i, out + i);
}

void FromBf16(const BFloat16* in, int64_t n, float* out) {
  const hn::Rebind<uint32_t, Tag> bits_tag;
  const hn::Rebind<uint16_t, Tag> half_tag;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto half = hn::LoadU(half_tag, &in[i].bits);
    hn::StoreU(hn::BitCast(kTag, hn::ShiftLeft<16>(hn::PromoteTo(bits_tag, half))), kTag, out + i);
  }
  ref::kVectorOps.from_bf16(in + i, n - i, out + i);
}

float ToQ8(const float* in, int64_t n, int8_t* out) {
  Vec max = hn::Zero(kTag);
  Vec nothing = hn::Zero(kTag);  // NaN where a number is not finite
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec x = hn::LoadU(kTag, in + i);
    max = hn::Max(max, hn::Abs(x));
    nothing = hn::MulAdd(x, hn::Zero(kTag), nothing);
  }
  float most = hn::GetLane(hn::MaxOfLanes(kTag, max));
  const bool finite = hn::AllFalse(kTag, hn::IsNaN(nothing));
  for (; finite && i < n && std::isfinite(in[i]); ++i) most = std::max(most, std::abs(in[i]));
  if (i < n || !finite || most < kLeastQ8) return ref::kVectorOps.to_q8(in, n, out);
  const float inverse = 127 / most;
  const Vec factor = hn::Set(kTag, inverse);
  const hn::Rebind<int8_t, Tag> byte_tag;
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(kTag, in + i), factor));
    hn::StoreU(hn::DemoteTo(byte_tag, rounded), byte_tag, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<int8_t>(std::nearbyint(in[i] * inverse));
  return most / 127;
}

HWY_INLINE Vec Widened(const int8_t* in) {
  const hn::RebindToSigned<Tag> integers;
  const auto bytes = hn::LoadU(hn::Rebind<int8_t, Tag>(), in);
  return hn::ConvertTo(kTag, hn::PromoteTo(integers, bytes));
}

void FromQ8(const int8_t* in, float scale, int64_t n, float* out) {
  const Vec factor = hn::Set(kTag, scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(Widened(in + i), factor), kTag, out + i);
  ref::kVectorOps.from_q8(in + i, scale, n - i, out + i);
}

void FromQ8Each(const int8_t* in, const float* scales, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Mul(Widened(in + i), hn::LoadU(kTag, scales + i)), kTag, out + i);
  }
  ref::kVectorOps.from_q8_each(in + i, scales + i, n - i, out + i);
}

// ---- kernels/packed_bf16.h

// rows(first, n, bases) of all rows of a page that lie together: the first of their numbers, and how many
// each has.
template <typename Rows>
HWY_INLINE void ForEachPackedRows(const PackedBf16Places& places, const std::byte* rest, const Rows& rows) {
  const int64_t d = places.head_dim, end = places.n_numbers / 2;
  const auto* const largest = reinterpret_cast<const uint8_t*>(rest);
  uint16_t of_keys[kMaxHeadDim];
  BasesInTurn(largest, d, of_keys);
  for (int64_t i = 0; i < end; i += kPackedRows * d) rows(i, d, KeyBases{of_keys});
  for (int64_t m = 0; m < d; m += kPackedRows) rows(end + m * kMaxRun, kMaxRun, ValueBases{largest, d + m});
}

// Of places.n_channels().
void FindLargest(const BFloat16* page, const PackedBf16Places& places, uint8_t* largest) {
  const auto* const numbers = reinterpret_cast<const uint16_t*>(page);
  const int64_t d = places.head_dim;
  const Words tag;
  const auto exponents = hn::Set(tag, uint16_t{0x7f80});
  uint16_t of_keys[kMaxHeadDim] = {};
  for (int64_t row = 0; row < kMaxRun; ++row) {
    const uint16_t* const keys = numbers + row * d;
    int64_t m = 0;
    for (; m + kWordLanes <= d; m += kWordLanes) {
      const auto exponent = hn::And(hn::LoadU(tag, keys + m), exponents);
      hn::StoreU(hn::Max(hn::LoadU(tag, of_keys + m), exponent), tag, of_keys + m);
    }
    for (; m < d; ++m) of_keys[m] = std::max(of_keys[m], static_cast<uint16_t>(keys[m] & 0x7f80));
  }
  for (int64_t m = 0; m < d; ++m) largest[m] = static_cast<uint8_t>(of_keys[m] >> 7);
  for (int64_t m = 0; m < d; ++m) {
    const uint16_t* const values = numbers + kMaxRun * (d + m);
    auto most = hn::Zero(tag);
    for (int64_t i = 0; i < kMaxRun; i += kWordLanes) {
      most = hn::Max(most, hn::And(hn::LoadU(tag, values + i), exponents));
    }
    largest[d + m] = static_cast<uint8_t>(hn::GetLane(hn::MaxOfLanes(tag, most)) >> 7);
  }
}

bool PackBf16(const BFloat16* page, int64_t head_dim, PackedBf16Room packed) {
  const PackedBf16Places places(head_dim);
  auto* const largest = reinterpret_cast<uint8_t*>(packed.rest);
  FindLargest(page, places, largest);
  const auto* const numbers = reinterpret_cast<const uint16_t*>(page);
  auto* const apart = reinterpret_cast<uint32_t*>(packed.rest + places.apart_at());
  auto* const apart_bits = reinterpret_cast<uint16_t*>(packed.rest + places.bits_at());
  uint32_t n_apart = 0;
  bool fits = true;
  ForEachPackedRows(places, packed.rest, [&](int64_t first, int64_t n, const auto& bases) HWY_ATTR {
    auto* const to = reinterpret_cast<uint16_t*>(packed.words) + PackedWords(first);
    bool any_apart = false;
    ForEachWords(n, [&](auto words, int64_t at, int64_t low, int64_t high) HWY_ATTR {
      const hn::RebindToSigned<decltype(words)> integers;
      const auto kept = hn::Set(words, uint16_t{kPackedSign | kPackedMantissa});
      auto least = hn::Set(integers, int16_t{15 * 128});
      const auto row = [&](int64_t r) HWY_ATTR {  // of all four as the first three lie
        const auto number = InTurn(words, numbers + first + r * n + low, numbers + first + r * n + high);
        const auto exponent = hn::And(number, hn::Set(words, uint16_t{0x7f80}));
        const auto code = hn::BitCast(integers, hn::Sub(exponent, bases.Of(words, r, at)));
        least = hn::Min(least, code);
        return hn::OrAnd(hn::BitCast(words, hn::Max(code, hn::Zero(integers))), number, kept);
      };
      const auto word0 = row(0), word1 = row(1), word2 = row(2), word3 = row(3);
      const auto moved = [&](auto bits, uint16_t which)
                             HWY_ATTR { return hn::And(bits, hn::Set(words, which)); };
      const auto free0 = hn::ShiftLeft<kCodeMoved>(moved(word3, kPackedCode));
      const auto free1 = hn::ShiftLeft<kUpperMoved>(moved(word3, kUpperMantissa));
      const auto free2 = hn::Or(hn::ShiftLeft<kLowerMoved>(moved(word3, kLowerMantissa)),
                                hn::ShiftRight<kSignMoved>(moved(word3, kPackedSign)));
      hn::StoreU(hn::Or(word0, free0), words, to + at);
      hn::StoreU(hn::Or(word1, free1), words, to + n + at);
      hn::StoreU(hn::Or(word2, free2), words, to + 2 * n + at);
      any_apart = any_apart || !hn::AllTrue(integers, hn::Gt(least, hn::Zero(integers)));
    });
    if (!any_apart) return;
    for (int64_t r = 0; r < kPackedRows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = first + r * n + i;
        if ((numbers[at] & 0x7f80) > PackedBase(largest[bases.Channel(r, i)])) continue;
        fits = fits && n_apart < places.most_apart;
        if (!fits) return;
        apart[n_apart] = static_cast<uint32_t>(at);
        apart_bits[n_apart++] = numbers[at];
      }
    }
  });
  std::memcpy(packed.rest + places.count_at(), &n_apart, sizeof(n_apart));
  return fits;
}

void UnpackBf16(PackedBf16 packed, int64_t head_dim, BFloat16* page) {
  const PackedBf16Places places(head_dim);
  auto* const numbers = reinterpret_cast<uint16_t*>(page);
  ForEachPackedRows(places, packed.rest, [&](int64_t first, int64_t n, const auto& bases) HWY_ATTR {
    const auto* const words = reinterpret_cast<const uint16_t*>(packed.words) + PackedWords(first);
    // Farther ahead than the hardware asks for, and over the ends of the system's pages.
    constexpr uintptr_t kAhead = 4096, kLine = 64;
    for (uintptr_t at = 0; at < static_cast<uintptr_t>(2 * PackedWords(kPackedRows * n)); at += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(words) + at + kAhead));
    }
    UnpackRows(words, n, bases, numbers + first);
  });
  uint32_t n_apart = 0;
  std::memcpy(&n_apart, packed.rest + places.count_at(), sizeof(n_apart));
  const auto* const apart = reinterpret_cast<const uint32_t*>(packed.rest + places.apart_at());
  const auto* const apart_bits = reinterpret_cast<const uint16_t*>(packed.rest + places.bits_at());
  for (uint32_t a = 0; a < n_apart; ++a) page[apart[a]].bits = apart_bits[a];
}

// As ref/ does it, to the bit: stored keys do not depend on the processor.
void Rotate(const float* in, int64_t x, const RotationTable& table, float* out) {
  const int64_t d = table.head_dim();
  const int64_t n_pairs = table.n_pairs();
  const bool interleaved = table.layout() == PairLayout::kInterleaved;
  const bool beside = interleaved && 2 * n_pairs == d;  // what is not turned has no partner
  const bool in_half = !interleaved && n_pairs % kLanes == 0;
  if (d % kLanes != 0 || d > kMaxHeadDim || !(beside || in_half))
    return ref::kVectorOps.rotate(in, x, table, out);
  HWY_ALIGN float rotated[kMaxHeadDim];  // out may be in
  for (int64_t m = 0; m < d; m += kLanes) {
    const Vec low_cos = hn::LoadU(kTag, table.low_cos(x) + m),
              low_sin = hn::LoadU(kTag, table.low_sin(x) + m);
    const Vec high_cos = hn::LoadU(kTag, table.high_cos(x) + m),
              high_sin = hn::LoadU(kTag, table.high_sin(x) + m);
    const Vec c = hn::Sub(hn::Mul(high_cos, low_cos), hn::Mul(high_sin, low_sin));
    const Vec s = hn::Add(hn::Mul(high_sin, low_cos), hn::Mul(high_cos, low_sin));
    const Vec own = hn::LoadU(kTag, in + m);
    const Vec partner = interleaved ? hn::Reverse2(kTag, own) : hn::LoadU(kTag, in + table.partner(m));
    hn::Store(hn::Add(hn::Mul(own, c), hn::Mul(partner, s)), kTag, rotated + m);
  }
  std::copy_n(rotated, d, out);
}

// Four at a time, each of which would wait for its last comparison.
ScoreRange RangeOf(const float* scores, int64_t n) {
  constexpr int64_t kVectors = 4;
  Vec least[kVectors], largest[kVectors];
  std::fill_n(least, kVectors, hn::Set(kTag, ScoreRange().least));
  std::fill_n(largest, kVectors, hn::Set(kTag, ScoreRange().largest));
  const auto take = [&](int64_t v, Vec score) {
    least[v] = hn::IfThenElse(hn::Lt(score, least[v]), score, least[v]);
    largest[v] = hn::IfThenElse(hn::Gt(score, largest[v]), score, largest[v]);
  };
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
    take(0, hn::LoadU(kTag, scores + i));
    take(1, hn::LoadU(kTag, scores + i + kLanes));
    take(2, hn::LoadU(kTag, scores + i + 2 * kLanes));
    take(3, hn::LoadU(kTag, scores + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) take(0, hn::LoadU(kTag, scores + i));
  for (int64_t v = 1; v < kVectors; ++v) {
    least[0] = hn::Min(least[0], least[v]);
    largest[0] = hn::Max(largest[0], largest[v]);
  }
  ScoreRange range = {.least = hn::GetLane(hn::MinOfLanes(kTag, least[0])),
                      .largest = hn::GetLane(hn::MaxOfLanes(kTag, largest[0]))};
  const ScoreRange rest = ref::kVectorOps.range(scores + i, n - i);
  return {.least = std::min(range.least, rest.least), .largest = std::max(range.largest, rest.largest)};
}

int64_t CountAtLeast(const float* scores, int64_t n, float least) {
  const Vec bound = hn::Set(kTag, least);
  std::size_t count = 0;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    count += hn::CountTrue(kTag, hn::Ge(hn::LoadU(kTag, scores + i), bound));
  }
  if (i < n) {
    const auto rest = hn::FirstN(kTag, static_cast<std::size_t>(n - i));
    count += hn::CountTrue(kTag, hn::And(rest, hn::Ge(hn::MaskedLoad(rest, kTag, scores + i), bound)));
  }
  return static_cast<int64_t>(count);
}

#if HWY_TARGET == HWY_AVX2

// For each mask of eight lanes those that are set, ascending.
constexpr auto kLanesOfMask = [] {
  std::array<std::array<uint8_t, 8>, 256> lanes = {};
  for (std::size_t mask = 0; mask < lanes.size(); ++mask) {
    std::size_t n = 0;
    for (uint8_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) lanes[mask][n++] = lane;
    }
  }
  return lanes;
}();

// hn::Compress, whose table GCC 12 lays on the stack anew at each call: ten times the work.
template <class D, class V, class M>
HWY_INLINE V Compressed(D integers, V values, M mask) {
  uint8_t bits[8] = {};  // so many must be writable
  hn::StoreMaskBits(integers, mask, bits);
  const auto lanes = hn::LoadU(hn::Rebind<uint8_t, D>(), kLanesOfMask[bits[0]].data());
  return hn::TableLookupLanes(values, hn::IndicesFromVec(integers, hn::PromoteTo(integers, lanes)));
}

#else

template <class D, class V, class M>
HWY_INLINE V Compressed(D, V values, M mask) {
  return hn::Compress(values, mask);
}

#endif

// Most scores are below: four vectors are looked at together first.
int64_t IndicesAtLeast(const float* scores, int64_t n, float least, int32_t* indices) {
  const hn::RebindToSigned<Tag> integers;
  const Vec bound = hn::Set(kTag, least);
  const auto lanes = hn::Iota(integers, 0);
  int64_t count = 0;
  const auto take = [&](int64_t at) {
    const auto seen = hn::RebindMask(integers, hn::Ge(hn::LoadU(kTag, scores + at), bound));
    const auto here = hn::Add(lanes, hn::Set(integers, static_cast<int32_t>(at)));
    hn::StoreU(Compressed(integers, here, seen), integers, indices + count);
    count += static_cast<int64_t>(hn::CountTrue(integers, seen));
  };
  const auto seen = [&](int64_t at) { return hn::Ge(hn::LoadU(kTag, scores + at), bound); };
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const auto any =
        hn::Or(hn::Or(seen(i), seen(i + kLanes)), hn::Or(seen(i + 2 * kLanes), seen(i + 3 * kLanes)));
    if (hn::AllFalse(kTag, any)) continue;
    for (int64_t v = 0; v < 4; ++v) take(i + v * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) take(i);
  for (; i < n; ++i) {
    indices[count] = static_cast<int32_t>(i);
    count += scores[i] >= least ? 1 : 0;
  }
  return count;
}

void FoldLargest(const float* scores, int64_t n, int64_t width, float* largest) {
  static_assert(kFoldWidth % kLanes == 0);
  for (int64_t j = 0; j < width; j += kLanes) {
    Vec most = hn::Set(kTag, kWorstScore);
    const auto take = [&](Vec score) { most = hn::IfThenElse(hn::Gt(score, most), score, most); };
    int64_t i = j;
    for (; i + kLanes <= n; i += width) take(hn::LoadU(kTag, scores + i));
    if (i < n) {
      const auto rest = hn::FirstN(kTag, static_cast<std::size_t>(n - i));
      take(hn::IfThenElse(rest, hn::MaskedLoad(rest, kTag, scores + i), hn::Set(kTag, kWorstScore)));
    }
    hn::StoreU(most, kTag, largest + j);
  }
}

double ExpSum(const float* scores, int64_t n, float largest) {
  constexpr int64_t kBlock = 1024;  // is summed in float32, blocks in float64
  const Vec most = hn::Set(kTag, largest);
  double sum = 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t end = std::min(n, first + kBlock);
    Vec sums = hn::Zero(kTag);
    int64_t i = first;
    for (; i + kLanes <= end; i += kLanes) {
      sums = hn::Add(sums, hn::Exp(kTag, hn::Sub(hn::LoadU(kTag, scores + i), most)));
    }
    if (i < end) {
      const auto rest = hn::FirstN(kTag, static_cast<std::size_t>(end - i));
      const Vec power = hn::Exp(kTag, hn::Sub(hn::MaskedLoad(rest, kTag, scores + i), most));
      sums = hn::Add(sums, hn::IfThenElseZero(rest, power));
    }
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(kTag, sums)));
  }
  return sum;
}

}  // namespace

const VectorKernels* VectorTable() {
  static const VectorKernels kTable = {.rms_norm = RmsNorm,
                                       .add = Add,
                                       .silu_mul = SiluMul,
                                       .rotate = Rotate,
                                       .to_bf16 = ToBf16,
                                       .from_bf16 = FromBf16,
                                       .to_q8 = ToQ8,
                                       .from_q8 = FromQ8,
                                       .from_q8_each = FromQ8Each,
                                       .pack_bf16 = PackBf16,
                                       .unpack_bf16 = UnpackBf16,
                                       .range = RangeOf,
                                       .count_at_least = CountAtLeast,
                                       .indices_at_least = IndicesAtLeast,
                                       .cut = FindCut<RangeOf, CountAtLeast>,
                                       .fold_largest = FoldLargest,
                                       .exp_sum = ExpSum};
  return &kTable;
}

}  // namespace longheads::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace longheads::cpu {

std::vector<Implementation<VectorKernels>> SimdVectorOps() {
  return {{"avx512", Declined(HWY_AVX3), N_AVX3::VectorTable()},
          {"avx2", Declined(HWY_AVX2), N_AVX2::VectorTable()}};
}

}  // namespace longheads::cpu
#endif  // HWY_ONCE
