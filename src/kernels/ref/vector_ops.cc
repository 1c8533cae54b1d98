#include "kernels/ref/vector_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/score_cut.h"

namespace longheads::ref {
namespace {

void RmsNorm(const float* x, const float* weight, float epsilon, int64_t n, float* out) {
  float squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void Add(float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] += b[i];
}

void SiluMul(float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

void Rotate(const float* in, int64_t x, const RotationTable& table, float* out) {
  const int64_t d = table.head_dim();
  float rotated[1024];
  LH_CHECK(d <= 1024);
  for (int64_t m = 0; m < d; ++m) {
    const float c = table.high_cos(x)[m] * table.low_cos(x)[m] - table.high_sin(x)[m] * table.low_sin(x)[m];
    const float s = table.high_sin(x)[m] * table.low_cos(x)[m] + table.high_cos(x)[m] * table.low_sin(x)[m];
    rotated[m] = in[m] * c + in[table.partner(m)] * s;
  }
  std::memcpy(out, rotated, sizeof(float) * static_cast<std::size_t>(d));
}

void ToBf16(const float* in, int64_t n, BFloat16* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    out[i].bits =
        static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

void FromBf16(const BFloat16* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i].bits) << 16);
}

float ToQ8(const float* in, int64_t n, int8_t* out) {
  float max = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    max = std::max(max, std::abs(in[i]));
    finite &= std::isfinite(in[i]);
  }
  if (!finite || max < kLeastQ8) {
    std::fill_n(out, n, int8_t{finite ? int8_t{0} : int8_t{1}});
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = 127 / max;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int8_t>(std::nearbyint(in[i] * inverse));
  return max / 127;
}

void FromQ8(const int8_t* in, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

void FromQ8Each(const int8_t* in, const float* scales, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scales[i];
}

// The row of number i of a page, by its first number, and how many numbers it has.
struct PackedRow {
  PackedRow(int64_t i, int64_t head_dim) : n(i < kMaxRun * head_dim ? head_dim : kMaxRun) {
    first = i / n * n;
    const int64_t together = kPackedRows * n, group = i / together * together;
    row = i / n % kPackedRows;
    word = PackedWords(group) + PackedPlace(i - first, n);
  }

  int64_t n, first;
  int64_t row;   // of those that lie together
  int64_t word;  // of the number in that place of the first of them; n words farther that of the second
};

// The channel of number i: V's come behind K's.
int64_t ChannelOf(int64_t i, int64_t head_dim) { return i < kMaxRun * head_dim ? i % head_dim : i / kMaxRun; }

bool PackBf16(const BFloat16* page, int64_t head_dim, PackedBf16Room packed) {
  const PackedBf16Places places(head_dim);
  auto* const words = reinterpret_cast<uint16_t*>(packed.words);
  auto* const largest = reinterpret_cast<uint8_t*>(packed.rest);
  auto* const apart = reinterpret_cast<uint32_t*>(packed.rest + places.apart_at());
  auto* const apart_bits = reinterpret_cast<uint16_t*>(packed.rest + places.bits_at());
  const auto exponent = [&](int64_t i) { return page[i].bits >> 7 & 0xff; };
  std::fill_n(largest, places.n_channels(), uint8_t{0});
  for (int64_t i = 0; i < places.n_numbers; ++i) {
    uint8_t& of_channel = largest[ChannelOf(i, head_dim)];
    of_channel = std::max(of_channel, static_cast<uint8_t>(exponent(i)));
  }
  uint32_t n_apart = 0;
  for (int64_t i = 0; i < places.n_numbers; ++i) {
    const uint16_t bits = page[i].bits;
    int code = (page[i].bits & 0x7f80) - PackedBase(largest[ChannelOf(i, head_dim)]);
    if (code <= 0) {
      if (n_apart == places.most_apart) return false;
      apart[n_apart] = static_cast<uint32_t>(i);
      apart_bits[n_apart++] = bits;
      code = 0;
    }
    const PackedRow at(i, head_dim);
    uint16_t* const word = words + at.word;
    if (at.row < kPackedRows - 1) {
      word[at.row * at.n] = static_cast<uint16_t>((bits & (kPackedSign | kPackedMantissa)) | code);
    } else {
      word[0] |= static_cast<uint16_t>(code << kCodeMoved);
      word[at.n] |= static_cast<uint16_t>((bits & kUpperMantissa) << kUpperMoved);
      word[2 * at.n] |=
          static_cast<uint16_t>((bits & kLowerMantissa) << kLowerMoved | (bits & kPackedSign) >> kSignMoved);
    }
  }
  std::memcpy(packed.rest + places.count_at(), &n_apart, sizeof(n_apart));
  return true;
}

void UnpackBf16(PackedBf16 packed, int64_t head_dim, BFloat16* page) {
  const PackedBf16Places places(head_dim);
  const auto* const words = reinterpret_cast<const uint16_t*>(packed.words);
  const auto* const largest = reinterpret_cast<const uint8_t*>(packed.rest);
  for (int64_t i = 0; i < places.n_numbers; ++i) {
    const PackedRow at(i, head_dim);
    const uint16_t* const word = words + at.word;
    int bits = 0;
    if (at.row < kPackedRows - 1) {
      bits = word[at.row * at.n] & kPackedBits;
    } else {
      bits = (word[0] >> kCodeMoved & kPackedCode) | (word[at.n] >> kUpperMoved & kUpperMantissa) |
             (word[2 * at.n] >> kLowerMoved & kLowerMantissa) | (word[2 * at.n] << kSignMoved & kPackedSign);
    }
    page[i].bits = static_cast<uint16_t>(bits + PackedBase(largest[ChannelOf(i, head_dim)]));
  }
  uint32_t n_apart = 0;
  std::memcpy(&n_apart, packed.rest + places.count_at(), sizeof(n_apart));
  const auto* const apart = reinterpret_cast<const uint32_t*>(packed.rest + places.apart_at());
  const auto* const apart_bits = reinterpret_cast<const uint16_t*>(packed.rest + places.bits_at());
  for (uint32_t a = 0; a < n_apart; ++a) page[apart[a]].bits = apart_bits[a];
}

ScoreRange RangeOf(const float* scores, int64_t n) {
  ScoreRange range;
  for (int64_t i = 0; i < n; ++i) {
    if (scores[i] < range.least) range.least = scores[i];
    if (scores[i] > range.largest) range.largest = scores[i];
  }
  return range;
}

int64_t CountAtLeast(const float* scores, int64_t n, float least) {
  return std::count_if(scores, scores + n, [least](float score) { return score >= least; });
}

int64_t IndicesAtLeast(const float* scores, int64_t n, float least, int32_t* indices) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (scores[i] >= least) indices[count++] = static_cast<int32_t>(i);
  }
  return count;
}

void FoldLargest(const float* scores, int64_t n, int64_t width, float* largest) {
  std::fill_n(largest, width, kWorstScore);
  for (int64_t i = 0; i < n; ++i) {
    float& most = largest[i % width];
    if (scores[i] > most) most = scores[i];
  }
}

double ExpSum(const float* scores, int64_t n, float largest) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(std::exp(scores[i] - largest));
  return sum;
}

}  // namespace

const VectorKernels kVectorOps = {.rms_norm = RmsNorm,
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

}  // namespace longheads::ref
