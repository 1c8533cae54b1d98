#include "kernels/int8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/quantised.h"
#include "tests/support/emulated_amx.h"
#include "tests/support/random_weights.h"
#include "tests/support/sanitized.h"

namespace longheads {
namespace {

std::vector<Implementation<Int8Kernels>> Candidates() {
  std::vector<Implementation<Int8Kernels>> all;
  const Implementation<Int8Kernels> emulated = EmulatedAmxInt8();
  if (emulated.declined.empty()) all.push_back(emulated);
  for (const auto& implementation : Int8Implementations()) {
    if (implementation.declined.empty()) all.push_back(implementation);
  }
  return all;
}

const Int8Kernels& Ref() { return *Candidates().back().table; }

std::vector<DType> TypesWithIntegers() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypes; ++i) {
    if (HasIntegers(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

struct Quantised {
  std::vector<int8_t> p;
  std::vector<Int8BlockSums> blocks;
  int64_t k;

  Int8Rows rows(int64_t from = 0) const { return {p.data() + from * k, blocks.data() + from * (k / 32), k}; }
};

Quantised Quantise(const Int8Kernels& kernels, const std::vector<float>& x, int64_t k) {
  Quantised q{
      .p = std::vector<int8_t>(x.size()), .blocks = std::vector<Int8BlockSums>(x.size() / 32), .k = k};
  const int64_t n_rows = static_cast<int64_t>(x.size()) / k;
  for (int64_t row = 0; row < n_rows; ++row) {
    kernels.quantise(x.data() + row * k, k, q.p.data() + row * k, q.blocks.data() + row * (k / 32));
  }
  return q;
}

std::vector<float> Normal(std::mt19937& random, int64_t n, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

Int8Weights Packed(DType type, const std::vector<std::byte>& rows, int64_t n, int64_t k) {
  Int8Weights weights(type, n, k);
  for (int64_t tile = 0; tile < weights.n_tiles(); ++tile) weights.Pack(rows.data(), tile);
  return weights;
}

// [n_rows, n]
std::vector<float> Product(const Int8Kernels& kernels, const Int8Weights& weights, const Quantised& x) {
  const int64_t n_rows = static_cast<int64_t>(x.p.size()) / x.k;
  std::vector<float> y(static_cast<std::size_t>(n_rows * weights.n()), -1.0f);
  kernels.multiply(weights, 0, weights.n_tiles(), x.rows(), n_rows, y.data(), weights.n());
  return y;
}

// Bit for bit; any NaN equals any other.
void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected,
                    const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << " at " << i << ": " << actual[i] << " and " << expected[i];
  }
}

void ExpectSameBlocks(const Quantised& actual, const Quantised& expected, std::string_view what) {
  ASSERT_EQ(actual.p, expected.p) << what;
  for (std::size_t i = 0; i < expected.blocks.size(); ++i) {
    const Int8BlockSums &a = actual.blocks[i], &e = expected.blocks[i];
    ExpectSameBits({a.scale, a.scaled_sum, a.scaled_halves[0], a.scaled_halves[1]},
                   {e.scale, e.scaled_sum, e.scaled_halves[0], e.scaled_halves[1]}, std::string(what));
    ASSERT_EQ(a.sum, e.sum) << what;
  }
}

TEST(Int8Quantise, RoundsToTheNearestOfItsBlock) {
  std::mt19937 random(1);
  for (const float size : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
    const std::vector<float> x = Normal(random, 32 * 50, size);
    for (const auto& candidate : Candidates()) {
      const Quantised q = Quantise(*candidate.table, x, 32);
      for (std::size_t block = 0; block < q.blocks.size(); ++block) {
        const Int8BlockSums& sums = q.blocks[block];
        float largest = 0;
        int halves[2] = {0, 0};
        for (std::size_t i = 0; i < 32; ++i) {
          const double value = x[32 * block + i];
          const int p = q.p[32 * block + i];
          largest = std::max(largest, std::abs(x[32 * block + i]));
          halves[i / 16] += p;
          ASSERT_LE(std::abs(p), 127);
          // Half a step, and the roundings of scale and quotient, 127 steps long at most.
          ASSERT_LE(std::abs(value / sums.scale - p), 0.5 + 127 * 0x1p-22) << candidate.name;
        }
        ASSERT_EQ(sums.scale, largest / 127.0f);
        ASSERT_EQ(sums.sum, halves[0] + halves[1]);
        ASSERT_EQ(sums.scaled_sum, sums.scale * static_cast<float>(sums.sum));
        for (int half = 0; half < 2; ++half) {
          ASSERT_EQ(sums.scaled_halves[half], sums.scale * static_cast<float>(halves[half]));
        }
      }
    }
  }
}

TEST(Int8Quantise, TakesANumberBetweenTwoToTheEvenOne) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f, x[1] = 0.5f, x[2] = 1.5f, x[3] = -2.5f, x[31] = -127.0f;
  for (const auto& candidate : Candidates()) {
    const Quantised q = Quantise(*candidate.table, x, 32);
    EXPECT_EQ((std::vector<int>{q.p[0], q.p[1], q.p[2], q.p[3], q.p[4], q.p[31]}),
              (std::vector<int>{127, 0, 2, -2, 0, -127}))
        << candidate.name;
  }
}

TEST(Int8Quantise, MarksABlockThatIsNotFiniteAndNoOther) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (std::size_t at : {0, 5, 15, 16, 31}) {
      std::vector<float> x(96, 1.0f);
      x[32 + at] = bad;
      for (const auto& candidate : Candidates()) {
        const Quantised q = Quantise(*candidate.table, x, 96);
        EXPECT_EQ(q.blocks[0].scale, 1.0f / 127);
        EXPECT_TRUE(std::isnan(q.blocks[1].scale) && std::isnan(q.blocks[1].scaled_sum)) << candidate.name;
        EXPECT_EQ(q.blocks[2].scaled_sum, 32 * 127 * (1.0f / 127));
      }
    }
  }
}

TEST(Int8Quantise, AgreesBetweenImplementationsOnAnyBits) {
  std::mt19937 random(2);
  std::vector<float> x(32 * 2000);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Whole blocks of one exponent, subnormal and infinite among them, then any bits at all.
    const uint32_t bits = static_cast<uint32_t>(random());
    const uint32_t exponent = static_cast<uint32_t>(i / 32 % 256);
    x[i] = std::bit_cast<float>(i < x.size() / 2 ? (bits & 0x807FFFFF) | exponent << 23 : bits);
  }
  const Quantised expected = Quantise(Ref(), x, 320);
  for (const auto& candidate : Candidates()) {
    ExpectSameBlocks(Quantise(*candidate.table, x, 320), expected, candidate.name);
  }
}

std::vector<int64_t> Columns(DType type) {
  if (Info(type).block == 256) return {256, 512, 1536};
  return {32, 64, 96, 288, 576, 1536};
}

// With the file's own de-quantised weights, in float64. Each block rounds twice, or four times for its two
// halves, and the scales' product and sum once more; the running sum is at most what has been added.
TEST(Int8Multiply, IsTheProductOfTheDequantisedWeightsAndActivations) {
  std::mt19937 random(3);
  const QuantisedKernels& file = *QuantisedImplementations().back().table;
  for (const DType type : TypesWithIntegers()) {
    for (const int64_t k : Columns(type)) {
      const int64_t n = 37, n_rows = 3;
      const std::vector<std::byte> rows = RandomWeights(random, type, n * k);
      std::vector<float> w(static_cast<std::size_t>(n * k));
      file.dequantize(type, rows.data(), n * k, w.data());
      const Quantised x = Quantise(Ref(), Normal(random, n_rows * k), k);
      const std::vector<float> y = Product(Ref(), Packed(type, rows, n, k), x);
      // Where there is no minimum, nothing cancels.
      const Int8Form form = FormOf(type);
      const double bias = form.bits == 8 ? 0 : std::max(form.bias, 1 << form.bits);
      for (int64_t row = 0; row < n_rows; ++row) {
        for (int64_t output = 0; output < n; ++output) {
          double sum = 0, magnitude = 0;
          for (int64_t block = 0; block < k / 32; ++block) {
            const double scale = x.blocks[static_cast<std::size_t>(row * k / 32 + block)].scale;
            double of_block = 0, largest = 0;
            for (int64_t i = 32 * block; i < 32 * (block + 1); ++i) {
              const double value = w[static_cast<std::size_t>(output * k + i)];
              sum += value * scale * x.p[static_cast<std::size_t>(row * k + i)];
              of_block += std::abs(scale * x.p[static_cast<std::size_t>(row * k + i)]);
              largest = std::max(largest, std::abs(value));
            }
            magnitude += (1 + bias) * largest * of_block;  // scale * q and the minimum apart
          }
          const double roundings = 4 * static_cast<double>(k) / 32 + 4;
          ASSERT_NEAR(y[static_cast<std::size_t>(row * n + output)], sum, roundings * 0x1p-24 * magnitude)
              << Info(type).name << ", k " << k << ", row " << row << ", output " << output;
        }
      }
    }
  }
}

TEST(Int8Multiply, GivesTheSameBitsInEveryImplementationForAnyNumberOfRows) {
  std::mt19937 random(4);
  for (const DType type : TypesWithIntegers()) {
    for (const int64_t k : Columns(type)) {
      for (const int64_t n : {1, 15, 16, 17, 50}) {
        const Int8Weights weights = Packed(type, RandomWeights(random, type, n * k), n, k);
        for (const int64_t n_rows : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 31, 32, 33, 50, 64}) {
          if (kSanitized && n_rows % 2 == 0 && n_rows != 50) continue;
          const Quantised x = Quantise(Ref(), Normal(random, n_rows * k), k);
          const std::vector<float> expected = Product(Ref(), weights, x);
          for (const auto& candidate : Candidates()) {
            const std::string what(candidate.name);
            ExpectSameBits(Product(*candidate.table, weights, x), expected,
                           what + " " + std::string(Info(type).name));
          }
        }
      }
    }
  }
}

// All that a type can hold against all that activations can: no sum may saturate.
TEST(Int8Multiply, HoldsTheLargestSums) {
  const int64_t k = 512, n = 16, n_rows = 39;
  for (const DType type : TypesWithIntegers()) {
    for (const int byte : {0xFF, 0x80, 0x7F, 0x00}) {
      std::vector<std::byte> rows(*BytesOf(type, n * k), static_cast<std::byte>(byte));
      for (std::size_t block = 0; block < rows.size();
           block += static_cast<std::size_t>(Info(type).block_bytes)) {
        for (const int offset : ScaleOffsets(type))
          SetHalf(&rows[block + static_cast<std::size_t>(offset)], 0x3C00);
      }
      const Int8Weights weights = Packed(type, rows, n, k);
      for (const float sign : {1.0f, -1.0f}) {
        const Quantised x =
            Quantise(Ref(), std::vector<float>(static_cast<std::size_t>(n_rows * k), sign), k);
        const std::vector<float> expected = Product(Ref(), weights, x);
        for (const auto& candidate : Candidates()) {
          const std::string what(candidate.name);
          ExpectSameBits(Product(*candidate.table, weights, x), expected,
                         what + " " + std::string(Info(type).name));
        }
      }
    }
  }
}

TEST(Int8Multiply, MultipliesTheTilesThatItIsAskedFor) {
  std::mt19937 random(5);
  const int64_t k = 64, n = 60;
  const Int8Weights weights = Packed(DType::kQ4_1, RandomWeights(random, DType::kQ4_1, n * k), n, k);
  const Quantised x = Quantise(Ref(), Normal(random, k), k);
  for (const auto& candidate : Candidates()) {
    const std::vector<float> whole = Product(*candidate.table, weights, x);
    std::vector<float> y(static_cast<std::size_t>(n), -1.0f), expected = y;
    candidate.table->multiply(weights, 1, 3, x.rows(), 1, y.data(), n);
    std::copy(whole.begin() + 16, whole.begin() + 48, expected.begin());
    EXPECT_EQ(y, expected) << candidate.name;
  }
}

TEST(Int8Multiply, KeepsWhatIsNotFiniteInItsRow) {
  std::mt19937 random(6);
  const int64_t k = 96, n = 20, n_rows = 29;
  const Int8Weights weights = Packed(DType::kQ4_1, RandomWeights(random, DType::kQ4_1, n * k), n, k);
  std::vector<float> x = Normal(random, n_rows * k);
  const std::vector<float> healthy = Product(Ref(), weights, Quantise(Ref(), x, k));
  x[4 * k + 40] = std::numeric_limits<float>::infinity();
  for (const auto& candidate : Candidates()) {
    const std::vector<float> y = Product(*candidate.table, weights, Quantise(*candidate.table, x, k));
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i / n == 4) {
        EXPECT_TRUE(std::isnan(y[i])) << candidate.name;
      } else {
        EXPECT_EQ(y[i], healthy[i]) << candidate.name;
      }
    }
  }
}

// What the pages of a file hold and what memory will: the same, but for the bytes that 6-bit scales become.
TEST(Int8Weights, AreAsLargeAsTheFile) {
  for (const DType type : TypesWithIntegers()) {
    const double ratio = static_cast<double>(Int8Weights::BytesFor(type, 64, 2048)) /
                         static_cast<double>(*BytesOf(type, 64 * 2048));
    EXPECT_LE(ratio, type == DType::kQ4_K || type == DType::kQ5_K ? 1.03 : 1.0) << Info(type).name;
  }
}

}  // namespace
}  // namespace longheads
