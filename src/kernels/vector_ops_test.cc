#include "kernels/vector_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ref/vector_ops.h"
#include "tests/support/rounding.h"

namespace longheads {
namespace {

class VectorOpsTest : public testing::TestWithParam<Implementation<VectorKernels>> {
 protected:
  void SetUp() override {
    if (!GetParam().declined.empty()) GTEST_SKIP() << GetParam().declined;
  }
  const VectorKernels& kernels() const { return *GetParam().table; }
};

std::vector<float> Random(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random) * 3;
  return values;
}

TEST_P(VectorOpsTest, MatchFloat64OnEveryLength) {
  for (int64_t n = 1; n < 70; ++n) {
    const std::vector<float> x = Random(n, 1), w = Random(n, 2);
    std::vector<float> out(n);
    double squares = 0;
    for (float value : x) squares += static_cast<double>(value) * value;
    kernels().rms_norm(x.data(), w.data(), 1e-5f, n, out.data());
    for (int64_t i = 0; i < n; ++i) {
      const double expected = x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * w[i];
      // n + 1 terms, all positive, of which the root halves the error; the root, a quotient and two products.
      EXPECT_NEAR(out[i], expected, Gamma(0.5 * static_cast<double>(n + 4) + 5) * std::abs(expected));
    }
    out = x;
    kernels().add(out.data(), w.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(out[i], x[i] + w[i]);
    out = x;
    kernels().silu_mul(out.data(), w.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      const double expected = x[i] / (1 + std::exp(-static_cast<double>(x[i]))) * w[i];
      // The power within 8 units in the last place, of an argument rounded once; a sum, a quotient, a
      // product.
      EXPECT_NEAR(out[i], expected, (Gamma(11) + Gamma(2) * std::abs(x[i])) * std::abs(expected));
    }
  }
}

TEST_P(VectorOpsTest, Bf16RoundsToNearestEvenAndKeepsNan) {
  std::vector<float> in = Random(37, 3);
  in[0] = 1.0f + 0x1p-8f;      // halfway: to even, down
  in[1] = 1.0f + 3 * 0x1p-8f;  // halfway: to even, up
  in[2] = INFINITY;
  in[3] = std::bit_cast<float>(0x7f800001u);  // a NaN whose payload lies in the lower half alone
  in[4] = -0.0f;
  std::vector<BFloat16> half(in.size());
  std::vector<float> back(in.size());
  kernels().to_bf16(in.data(), 37, half.data());
  kernels().from_bf16(half.data(), 37, back.data());
  EXPECT_EQ(back[0], 1.0f);
  EXPECT_EQ(back[1], 1.0f + 0x1p-6f);
  EXPECT_EQ(back[2], INFINITY);
  EXPECT_TRUE(std::isnan(back[3]));
  EXPECT_TRUE(std::signbit(back[4]));
  for (std::size_t i = 5; i < in.size(); ++i) EXPECT_NEAR(back[i], in[i], std::abs(in[i]) * 0x1p-8);
}

TEST_P(VectorOpsTest, Q8RoundsToTheNearestOf255Steps) {
  for (const int64_t n : {1, 7, 16, 37, 64, 256}) {
    std::vector<float> in = Random(n, n);
    in[static_cast<std::size_t>(n / 2)] = -32;  // the largest magnitude
    std::vector<int8_t> q(in.size()), reference(in.size());
    std::vector<float> back(in.size()), each(in.size());
    const float scale = kernels().to_q8(in.data(), n, q.data());
    EXPECT_EQ(scale, 32.0f / 127);
    EXPECT_EQ(ref::kVectorOps.to_q8(in.data(), n, reference.data()), scale);
    EXPECT_EQ(q, reference);  // the same bits from every implementation
    kernels().from_q8(q.data(), scale, n, back.data());
    const std::vector<float> scales(in.size(), scale);
    kernels().from_q8_each(q.data(), scales.data(), n, each.data());
    EXPECT_EQ(back, each);
    // Half a step, and the roundings of the inverse, of two products and of the scale.
    for (std::size_t i = 0; i < in.size(); ++i) {
      EXPECT_NEAR(back[i], in[i], scale / 2 + Gamma(4) * 32) << i;
    }
    EXPECT_EQ(q[static_cast<std::size_t>(n / 2)], -127);
  }
}

TEST_P(VectorOpsTest, Q8OfRowsWithoutAScale) {
  for (const int64_t n : {3, 16, 37}) {
    for (const std::size_t at : {std::size_t{0}, static_cast<std::size_t>(n - 1)}) {
      std::vector<int8_t> q(static_cast<std::size_t>(n), 5);
      std::vector<float> in(q.size(), 0.0f), back(q.size());
      in[at] = 1e-38f;
      EXPECT_EQ(kernels().to_q8(in.data(), n, q.data()), 0);
      for (const int8_t value : q) EXPECT_EQ(value, 0);
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        in[at] = bad;
        const float scale = kernels().to_q8(in.data(), n, q.data());
        kernels().from_q8(q.data(), scale, n, back.data());
        for (const float value : back) EXPECT_TRUE(std::isnan(value));
      }
    }
  }
}

TEST_P(VectorOpsTest, RotateKeepsNormsAndAddsAngles) {
  for (const PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalfSplit}) {
    std::vector<double> theta;
    for (int m = 0; m < 32; ++m) theta.push_back(std::pow(10000.0, -m / 32.0));
    const RotationTable table(theta, 64, layout, 6000);
    const std::vector<float> x = Random(64, 4);
    std::vector<float> once(64), twice(64), direct(64);
    kernels().rotate(x.data(), 1234, table, once.data());
    kernels().rotate(once.data(), 3000, table, twice.data());
    kernels().rotate(x.data(), 4234, table, direct.data());
    for (int m = 0; m < 64; ++m) {
      // Each of three rotations has a cosine and a sine from four numbers of the table (7 roundings), two
      // products and their sum.
      const int p = static_cast<int>(table.partner(m));
      EXPECT_NEAR(twice[m], direct[m], 3 * Gamma(10) * std::hypot(x[m], x[p]));
    }
    kernels().rotate(once.data(), 0, table, once.data());  // in place, by nothing
    kernels().rotate(x.data(), 1234, table, direct.data());
    EXPECT_EQ(once, direct);
  }
}

// What is stored does not depend on the processor.
TEST_P(VectorOpsTest, RotatesToTheSameBits) {
  for (const PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalfSplit}) {
    for (const auto& [n_pairs, head_dim] : {std::pair(32, 64), {16, 64}, {40, 80}, {12, 80}, {5, 13}}) {
      std::vector<double> theta;
      for (int m = 0; m < n_pairs; ++m) theta.push_back(std::pow(10000.0, -m / 32.0));
      const RotationTable table(theta, head_dim, layout, 6000);
      std::vector<float> x = Random(head_dim, 5);
      x[static_cast<std::size_t>(head_dim - 3)] = -0.0f;
      std::vector<float> rotated(x.size()), expected(x.size());
      kernels().rotate(x.data(), 4321, table, rotated.data());
      VectorImplementations().back().table->rotate(x.data(), 4321, table, expected.data());
      const auto same = [&](const std::vector<float>& one) {
        return std::memcmp(one.data(), expected.data(), sizeof(float) * expected.size()) == 0;
      };
      EXPECT_TRUE(same(rotated)) << n_pairs << " of " << head_dim;
      kernels().rotate(x.data(), 4321, table, x.data());
      EXPECT_TRUE(same(x)) << n_pairs << " of " << head_dim << " in place";
    }
  }
}

TEST_P(VectorOpsTest, ScoresAreComparedAsNumbers) {
  std::mt19937 random(9);
  for (const int64_t n : {0, 1, 7, 8, 15, 16, 17, 33, 100}) {
    for (const uint32_t n_distinct : {1u, 5u, 1u << 20}) {
      std::vector<float> scores;
      for (int64_t i = 0; i < n; ++i) {
        const float drawn = static_cast<float>(random() % n_distinct) - static_cast<float>(n_distinct / 2);
        scores.push_back(random() % 7 == 0 ? NAN : random() % 7 == 0 ? -INFINITY : drawn);
      }
      std::vector<float> bounds = {-INFINITY, -1, -0.0f, 0, 1, INFINITY, NAN};
      bounds.insert(bounds.end(), scores.begin(), scores.end());
      for (const float least : bounds) {
        std::vector<int32_t> expected, indices(static_cast<std::size_t>(n + kIndexRoom));
        for (int32_t i = 0; i < n; ++i) {
          if (scores[static_cast<std::size_t>(i)] >= least) expected.push_back(i);
        }
        EXPECT_EQ(kernels().count_at_least(scores.data(), n, least), static_cast<int64_t>(expected.size()));
        const int64_t count = kernels().indices_at_least(scores.data(), n, least, indices.data());
        indices.resize(static_cast<std::size_t>(count));
        EXPECT_EQ(indices, expected);
      }
      std::erase_if(scores, [](float score) { return std::isnan(score); });
      const ScoreRange range = kernels().range(scores.data(), static_cast<int64_t>(scores.size()));
      const auto [least, largest] = std::minmax_element(scores.begin(), scores.end());
      EXPECT_EQ(range.least, scores.empty() ? INFINITY : *least);
      EXPECT_EQ(range.largest, scores.empty() ? -INFINITY : *largest);
    }
  }
  const std::vector<float> bad(20, NAN);
  EXPECT_EQ(kernels().range(bad.data(), 20).least, INFINITY);
  EXPECT_EQ(kernels().range(bad.data(), 20).largest, -INFINITY);
}

// Where scores lie decides which are cut off: every implementation finds the same place.
TEST_P(VectorOpsTest, ScoresAreCutBelowTheBest) {
  std::mt19937 random(10);
  for (const int64_t n : {1, 2, 15, 16, 33, 100}) {
    for (const uint32_t n_distinct : {1u, 5u, 1u << 20}) {
      std::vector<float> scores;
      for (int64_t i = 0; i < n; ++i) {
        const float special[] = {NAN,      INFINITY,  -INFINITY, 0.0f, -0.0f,
                                 1.4e-45f, -1.4e-45f, 2.8e-45f,  1,    3e38f};
        scores.push_back(random() % 3 == 0 ? special[random() % std::size(special)]
                                           : static_cast<float>(random() % n_distinct));
      }
      std::vector<float> sorted = scores;
      std::erase_if(sorted, [](float score) { return std::isnan(score) || score == kWorstScore; });
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const auto n_numbers = static_cast<int64_t>(sorted.size());
      for (int64_t wanted = 1; wanted <= n; wanted += 1 + n / 9) {
        const ScoreCut cut = kernels().cut(scores.data(), n, wanted, wanted + wanted / 4);
        const ScoreCut of_reference =
            VectorImplementations().back().table->cut(scores.data(), n, wanted, wanted + wanted / 4);
        EXPECT_EQ(cut.at, of_reference.at);
        EXPECT_EQ(cut.n, of_reference.n);
        const auto n_at_least = [&](float at) {
          return std::count_if(sorted.begin(), sorted.end(), [at](float score) { return score >= at; });
        };
        if (wanted > n_numbers) {
          EXPECT_EQ(cut.at, kWorstScore);
          continue;
        }
        EXPECT_EQ(cut.n, n_at_least(cut.at));
        EXPECT_GE(cut.n, wanted);
        EXPECT_LT(n_at_least(cut.above), wanted);
        const float last = sorted[static_cast<std::size_t>(wanted - 1)];
        if (n_at_least(last) <= wanted + wanted / 4) {
          EXPECT_LE(cut.n, wanted + wanted / 4);
        }
      }
    }
  }
}

TEST_P(VectorOpsTest, FoldingLeavesTheLargestOfEachLane) {
  std::mt19937 random(11);
  for (const int64_t width : {kFoldWidth, 3 * kFoldWidth}) {
    for (const int64_t n : {width, width + 1, 2 * width - 1, 2 * width, 7 * width + 5}) {
      std::vector<float> scores, expected(static_cast<std::size_t>(width), kWorstScore);
      for (int64_t i = 0; i < n; ++i) {
        scores.push_back(random() % 3 == 0 ? NAN : static_cast<float>(random() % 100) - 50);
        float& largest = expected[static_cast<std::size_t>(i % width)];
        if (scores.back() > largest) largest = scores.back();
      }
      std::vector<float> folded(expected.size());
      kernels().fold_largest(scores.data(), n, width, folded.data());
      EXPECT_EQ(folded, expected);
    }
  }
}

TEST_P(VectorOpsTest, ExpSumIsOfEveryScore) {
  for (const int64_t n : {0, 1, 5, 8, 17, 1000, 1024, 1031, 5000}) {
    std::vector<float> scores = Random(n, 11);
    const float largest = n == 0 ? 0 : *std::max_element(scores.begin(), scores.end());
    if (n > 8) scores[3] = -INFINITY;
    if (n > 16) scores[16] = std::numeric_limits<float>::lowest();
    double expected = 0;
    for (const float score : scores) {
      expected += std::exp(static_cast<double>(score) - static_cast<double>(largest));
    }
    // A difference rounded once, of numbers whose powers count while they are below 104; the power within 8
    // units in the last place; 1024 of them, all positive, summed.
    EXPECT_NEAR(kernels().exp_sum(scores.data(), n, largest), expected, Gamma(104 + 8 + 1024) * expected);
  }
}

// The pieces of one, which nothing else lies in.
struct PackedPage {
  explicit PackedPage(const PackedBf16Places& places)
      : words(static_cast<std::size_t>(places.words_bytes)),
        rest(static_cast<std::size_t>(places.rest_bytes())) {}
  PackedBf16Room pieces() { return {words.data(), rest.data()}; }

  std::vector<std::byte> words, rest;
};

std::vector<uint16_t> BitsOf(const std::vector<BFloat16>& numbers) {
  std::vector<uint16_t> bits;
  for (const BFloat16 number : numbers) bits.push_back(number.bits);
  return bits;
}

std::vector<uint16_t> UnpackedBits(const VectorKernels& kernels, PackedPage& packed,
                                   const PackedBf16Places& places) {
  std::vector<BFloat16> page(static_cast<std::size_t>(places.n_numbers));
  kernels.unpack_bf16(packed.pieces(), places.head_dim, page.data());
  return BitsOf(page);
}

// Keys and values whose channels are of quite different sizes; `also` takes the place of the first numbers.
std::vector<BFloat16> Page(int64_t head_dim, const std::vector<uint16_t>& also = {}) {
  const PackedBf16Places places(head_dim);
  std::vector<float> values = Random(places.n_numbers, static_cast<unsigned>(head_dim));
  for (int64_t i = 0; i < places.n_numbers; ++i) {
    const int64_t channel = i < kMaxRun * head_dim ? i % head_dim : i / kMaxRun;
    values[static_cast<std::size_t>(i)] *= std::exp2(static_cast<float>(channel * 7 % 40 - 20));
  }
  std::vector<BFloat16> page(values.size());
  ref::kVectorOps.to_bf16(values.data(), places.n_numbers, page.data());
  for (std::size_t i = 0; i < also.size(); ++i) page[i].bits = also[i];
  return page;
}

TEST_P(VectorOpsTest, PackedPagesComeBackToTheBit) {
  constexpr uint16_t kZero = 0, kMinusZero = 0x8000, kSubnormal = 1, kInfinity = 0x7f80, kNan = 0xffc1;
  for (const int64_t head_dim : {16, 48, 64, 80, 128, 256}) {
    for (const std::vector<uint16_t>& also :
         {std::vector<uint16_t>{}, {kZero, kMinusZero, kSubnormal}, {kInfinity}, {kNan, 0xff80}}) {
      const PackedBf16Places places(head_dim);
      const std::vector<BFloat16> page = Page(head_dim, also);
      PackedPage packed(places), expected(places);
      const bool fits = ref::kVectorOps.pack_bf16(page.data(), head_dim, expected.pieces());
      ASSERT_EQ(kernels().pack_bf16(page.data(), head_dim, packed.pieces()), fits);
      // Beside an infinity a channel's other numbers are all too small.
      ASSERT_EQ(fits, also.empty() || also[0] == kZero) << head_dim;
      if (!fits) continue;
      EXPECT_EQ(packed.words, expected.words);
      EXPECT_EQ(packed.rest, expected.rest);
      EXPECT_EQ(UnpackedBits(kernels(), packed, places), BitsOf(page));
    }
  }
}

TEST_P(VectorOpsTest, PacksPagesOfZerosAndOfWhatIsNoNumber) {
  constexpr int64_t kDim = 64;
  const PackedBf16Places places(kDim);
  for (const uint16_t bits : {0x0000, 0x8000, 0x7f80, 0xffff, 0x0001, 0x3f80}) {
    const std::vector<BFloat16> page(static_cast<std::size_t>(places.n_numbers), BFloat16{bits});
    PackedPage packed(places);
    ASSERT_TRUE(kernels().pack_bf16(page.data(), kDim, packed.pieces()));
    EXPECT_EQ(UnpackedBits(kernels(), packed, places), BitsOf(page));
  }
}

TEST_P(VectorOpsTest, PacksNoPageOfWhichTooMuchStandsApart) {
  constexpr int64_t kDim = 64;
  const PackedBf16Places places(kDim);
  std::vector<BFloat16> page(static_cast<std::size_t>(places.n_numbers), BFloat16{0x3f80});
  std::mt19937 random(5);
  std::vector<std::size_t> some(page.size());
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = i;
  std::shuffle(some.begin(), some.end(), random);
  for (int64_t n = 0; n <= places.most_apart + 1; ++n) {
    PackedPage packed(places);
    ASSERT_EQ(kernels().pack_bf16(page.data(), kDim, packed.pieces()), n <= places.most_apart);
    if (n <= places.most_apart) {
      EXPECT_EQ(UnpackedBits(kernels(), packed, places), BitsOf(page));
    }
    page[some[static_cast<std::size_t>(n)]].bits = 0x3f80 - (15 << 7);  // the least that has no code
  }
}

INSTANTIATE_TEST_SUITE_P(Every, VectorOpsTest,
                         testing::ValuesIn(VectorImplementations().begin(), VectorImplementations().end()),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace longheads
