#include "kernels/quantised.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "tests/support/random_weights.h"

namespace longheads {

extern const QuantisedKernels kQuantisedFourLanes;  // quantised_four_lanes_test.cc

namespace {

struct Candidate {
  std::string name;
  const QuantisedKernels* kernels;
};

// The implementations that can run on this machine, ref last.
std::vector<Candidate> Implementations() {
  std::vector<Candidate> all;
  for (const auto& implementation : QuantisedImplementations()) {
    if (implementation.declined.empty())
      all.push_back({std::string(implementation.name), implementation.table});
  }
  return all;
}

// Those, after the four-lane build. That one is for finite scales alone: without F16C Highway widens the
// float16 infinities and NaNs to large numbers.
std::vector<Candidate> Candidates() {
  std::vector<Candidate> all = Implementations();
  if (hwy::SupportedTargets() & HWY_SSE4) all.insert(all.begin(), {"four lanes", &kQuantisedFourLanes});
  return all;
}

const QuantisedKernels& Ref() { return *Candidates().back().kernels; }

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypes; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

bool IsFloat(DType type) { return Info(type).block == 1; }

std::vector<float> RandomActivations(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

std::vector<float> Dequantized(const QuantisedKernels& kernels, DType type,
                               const std::vector<std::byte>& bytes) {
  const DTypeInfo& info = Info(type);
  const int64_t n = static_cast<int64_t>(bytes.size()) / info.block_bytes * info.block;
  std::vector<float> values(static_cast<size_t>(n), -1.0f);
  kernels.dequantize(type, bytes.data(), n, values.data());
  return values;
}

std::vector<float> Product(const QuantisedKernels& kernels, DType type, const std::vector<std::byte>& w,
                           int64_t row_begin, int64_t row_end, const std::vector<float>& x) {
  std::vector<float> y(static_cast<size_t>(row_end - row_begin), -1.0f);
  kernels.gemv(type, w.data(), row_begin, row_end, static_cast<int64_t>(x.size()), x.data(), y.data());
  return y;
}

// Bit for bit, so that 0 and -0 differ; any NaN equals any other.
void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected,
                    const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << " at " << i << ": " << actual[i] << " and " << expected[i];
  }
}

std::string ReadFile(const std::string& name) {
  std::ifstream file(std::string(LONGHEADS_SOURCE_DIR) + "/tests/golden/quantised/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(QuantisedDequantize, EqualsTheGgufPackageBitForBit) {
  for (DType type : AllTypes()) {
    const std::string name(Info(type).name);
    const std::string blocks = ReadFile(name + ".blocks"), values = ReadFile(name + ".f32");
    const auto* bytes = reinterpret_cast<const std::byte*>(blocks.data());
    std::vector<float> expected(values.size() / sizeof(float));
    ASSERT_FALSE(expected.empty()) << name;
    std::memcpy(expected.data(), values.data(), expected.size() * sizeof(float));
    for (const Candidate& candidate : Candidates()) {
      ExpectSameBits(Dequantized(*candidate.kernels, type, {bytes, bytes + blocks.size()}), expected,
                     name + " " + candidate.name);
    }
  }
}

TEST(QuantisedDequantize, AgreesBetweenImplementationsOnAnyBytes) {
  std::mt19937 random(1);
  for (DType type : AllTypes()) {
    // Unrestrained bytes: scales that are infinite, NaN, subnormal or huge are all among them.
    for (int64_t blocks : {0, 1, 2, 3, 500}) {
      const std::vector<std::byte> bytes = RandomBytes(random, *BytesOf(type, blocks * Info(type).block));
      const std::vector<float> expected = Dequantized(Ref(), type, bytes);
      for (const Candidate& candidate : Implementations()) {
        ExpectSameBits(Dequantized(*candidate.kernels, type, bytes), expected,
                       std::string(Info(type).name) + " " + candidate.name);
      }
    }
  }
}

TEST(QuantisedDequantize, AgreesBetweenImplementationsOnFiniteScales) {
  std::mt19937 random(5);
  for (DType type : AllTypes()) {
    const std::vector<std::byte> bytes = RandomWeights(random, type, 500 * Info(type).block);
    const std::vector<float> expected = Dequantized(Ref(), type, bytes);
    for (const Candidate& candidate : Candidates()) {
      ExpectSameBits(Dequantized(*candidate.kernels, type, bytes), expected,
                     std::string(Info(type).name) + " " + candidate.name);
    }
  }
}

TEST(QuantisedDequantize, WidensEveryHalfExactly) {
  std::vector<std::byte> bytes(2 << 16);
  for (unsigned i = 0; i < 1 << 16; ++i) SetHalf(&bytes[2 * i], i);
  for (const Candidate& candidate : Implementations()) {
    const std::vector<float> values = Dequantized(*candidate.kernels, DType::kF16, bytes);
    for (unsigned i = 0; i < 1 << 16; ++i) {
      const unsigned exponent = i >> 10 & 31, mantissa = i & 1023;
      const float expected =
          exponent == 31  ? (mantissa ? NAN : INFINITY)
          : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                          : std::ldexp(static_cast<float>(1024 + mantissa), static_cast<int>(exponent) - 25);
      ExpectSameBits({values[i]}, {std::copysign(expected, i >> 15 ? -1.0f : 1.0f)}, candidate.name);
    }
  }
}

// The columns worth a test: one block, the default model's, several 256-blocks; for floats also every
// remainder.
std::vector<int64_t> Columns(DType type) {
  if (Info(type).block == 256) return {256, 512, 1536, 2048, 8448};
  if (Info(type).block == 32) return {32, 64, 96, 576, 1536, 2048, 8224};
  return {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100, 576, 1536, 2048};
}

// What stays of the weights when every quantum is zero: the minima (for types without, the bias times the
// scale).
std::vector<float> Offsets(DType type, std::vector<std::byte> w) {
  if (IsFloat(type)) return std::vector<float>(Dequantized(Ref(), type, w).size(), 0.0f);
  const size_t block_bytes = static_cast<size_t>(Info(type).block_bytes);
  const bool six_bit_scales = type == DType::kQ4_K || type == DType::kQ5_K;
  for (size_t block = 0; block < w.size(); block += block_bytes) {
    const auto begin = w.begin() + static_cast<std::ptrdiff_t>(block);
    if (type == DType::kQ6_K) {
      std::fill(begin, begin + 192, std::byte{0});
    } else {
      const auto head =
          static_cast<std::ptrdiff_t>(2 * ScaleOffsets(type).size() + (six_bit_scales ? 12 : 0));
      std::fill(begin + head, begin + static_cast<std::ptrdiff_t>(block_bytes), std::byte{0});
    }
  }
  return Dequantized(Ref(), type, w);
}

// y against float64 sums of the de-quantised weights. A kernel may keep scale * q and the minimum apart, so
// the error of one product grows with |scale * q| + |min| <= |w| + 2 |min|; every product passes through at
// most `depth` roundings of 2^-24: all of the columns one after the other in ref; in the vector kernels at
// least four sums run side by side, a group's products join the total as one, and 16 covers the scales, the
// start of a group and the final reduction.
TEST(QuantisedGemv, IsWithinRoundingOfTheFloat64Product) {
  std::mt19937 random(2);
  for (DType type : AllTypes()) {
    for (int64_t k : Columns(type)) {
      const int64_t n_rows = 7;
      const std::vector<std::byte> w = RandomWeights(random, type, n_rows * k);
      const std::vector<float> x = RandomActivations(random, k);
      const std::vector<float> values = Dequantized(Ref(), type, w), offsets = Offsets(type, w);
      for (const Candidate& candidate : Candidates()) {
        const std::vector<float> y = Product(*candidate.kernels, type, w, 0, n_rows, x);
        const double depth =
            candidate.name == "ref" ? static_cast<double>(k) + 3 : static_cast<double>(k) / 8 + 16;
        for (int64_t row = 0; row < n_rows; ++row) {
          double sum = 0, magnitude = 0;
          for (int64_t i = 0; i < k; ++i) {
            const size_t at = static_cast<size_t>(row * k + i);
            const double xi = x[static_cast<size_t>(i)];
            sum += values[at] * xi;
            magnitude += (std::abs(values[at]) + 2 * std::abs(offsets[at])) * std::abs(xi);
          }
          ASSERT_NEAR(y[static_cast<size_t>(row)], sum, 1.01 * depth * std::ldexp(magnitude, -24))
              << Info(type).name << " " << candidate.name << " k " << k << " row " << row;
        }
      }
    }
  }
}

TEST(QuantisedGemv, GivesARowTheSameBitsWhateverTheRange) {
  std::mt19937 random(3);
  for (DType type : AllTypes()) {
    for (int64_t k : Columns(type)) {
      const int64_t n_rows = 11;
      const std::vector<std::byte> w = RandomWeights(random, type, n_rows * k);
      const std::vector<float> x = RandomActivations(random, k);
      for (const Candidate& candidate : Candidates()) {
        const std::vector<float> whole = Product(*candidate.kernels, type, w, 0, n_rows, x);
        for (int64_t begin = 0; begin < n_rows; ++begin) {
          for (int64_t count : {0, 1, 3, 4, 5, 7}) {
            if (begin + count > n_rows) continue;
            ExpectSameBits(Product(*candidate.kernels, type, w, begin, begin + count, x),
                           {whole.begin() + begin, whole.begin() + begin + count},
                           std::string(Info(type).name) + " " + candidate.name);
          }
        }
      }
    }
  }
}

TEST(QuantisedGemv, KeepsTheDamageOfAnInfiniteScaleInItsRow) {
  std::mt19937 random(4);
  for (DType type : AllTypes()) {
    if (IsFloat(type)) continue;
    const int64_t k = 512, n_rows = 6, hurt = 2;
    const std::vector<std::byte> w = RandomWeights(random, type, n_rows * k);
    const std::vector<float> x = RandomActivations(random, k);
    for (unsigned bits : {0x7C00u, 0xFC00u, 0x7E01u}) {
      std::vector<std::byte> damaged = w;
      for (int offset : ScaleOffsets(type)) {
        SetHalf(&damaged[*BytesOf(type, hurt * k) + static_cast<size_t>(offset)], bits);
      }
      for (const Candidate& candidate : Implementations()) {
        const std::vector<float> before = Product(*candidate.kernels, type, w, 0, n_rows, x);
        std::vector<float> after = Product(*candidate.kernels, type, damaged, 0, n_rows, x);
        EXPECT_FALSE(std::isfinite(after[hurt])) << Info(type).name << " " << candidate.name;
        after[hurt] = before[hurt];
        ExpectSameBits(after, before, std::string(Info(type).name) + " " + candidate.name);
      }
    }
  }
}

TEST(QuantisedGemv, OfNoColumnsIsZero) {
  for (DType type : AllTypes()) {
    for (const Candidate& candidate : Candidates()) {
      EXPECT_EQ(Product(*candidate.kernels, type, {}, 0, 5, {}), std::vector<float>(5, 0.0f))
          << candidate.name;
    }
  }
}

TEST(QuantisedImplementations, AreOrderedAndSayWhyTheyDecline) {
  const auto all = QuantisedImplementations();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "avx512");
  EXPECT_EQ(all[1].name, "avx2");
  EXPECT_EQ(all[2].name, "ref");
  EXPECT_EQ(all[2].declined, "");
  for (const auto& implementation : all) {
    const auto forced = ChooseImplementation(all, implementation.name, "quantised products");
    if (implementation.declined.empty()) {
      ASSERT_TRUE(forced);
      EXPECT_EQ(forced->table, implementation.table);
    } else {
      ASSERT_FALSE(forced);
      EXPECT_NE(forced.error().message.find(implementation.declined), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace longheads
