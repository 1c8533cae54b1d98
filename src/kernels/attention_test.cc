#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kernels/vector_ops.h"
#include "tests/support/emulated_amx.h"
#include "tests/support/rounding.h"

namespace longheads {
namespace {

std::vector<double> Theta(int64_t head_dim) {
  std::vector<double> theta;
  for (int64_t m = 0; m < head_dim / 2; ++m) {
    theta.push_back(std::pow(10000.0, -2.0 * static_cast<double>(m) / static_cast<double>(head_dim)));
  }
  return theta;
}

// The largest of a row's and its keys' numbers, which bound what roundings make of its output.
struct Magnitudes {
  double logit = 0;
  double terms = 0;  // the norm of a logit's terms
  double value = 0;

  void Raise(const Magnitudes& other) {
    logit = std::max(logit, other.logit);
    terms = std::max(terms, other.terms);
    value = std::max(value, other.value);
  }

  // By products of float32. Of a logit: cosine and sine from four numbers of the table, two products and
  // their sum, a scale of three factors, and d terms of signs at random, whose sums are below three times
  // their norm. Of its power: the logit less the largest, and 2^-22 by the kernels' own account. Sums of n of
  // them stand above and below the fraction.
  double Bound(int64_t d, int64_t n_keys) const {
    const double of_weights =
        6 * Deviation(static_cast<double>(d) + 15, 3 * terms) + Gamma(4) * logit + 0x1p-22;
    return 2 * value * (of_weights + 6 * Deviation(static_cast<double>(n_keys) + 8, 1));
  }
  // By products of bfloat16, with keys and values that are of it. Every rotated query and every weight is off
  // by 2^-9 at most, of signs at random. A weight enters above and below the fraction by its logit, above
  // alone by its own rounding.
  double Bf16Bound(int64_t d, int64_t n_keys) const {
    const double of_logit = 6 * 0x1p-9 / std::sqrt(3.0) * terms;
    return Bound(d, n_keys) + value * (2 * of_logit + 0x1p-9 + 0x1p-17);
  }
};

// Queries, one page of keys and values, and float64 attention over any part of it.
struct Case {
  int64_t d;
  int64_t n_rows;
  int64_t n_keys;
  std::vector<float> q, k, v;
  RotationTable table;

  Case(int64_t head_dim, int64_t rows, int64_t keys, PairLayout layout, unsigned seed = 1)
      : d(head_dim),
        n_rows(rows),
        n_keys(keys),
        q(head_dim * rows),
        k(head_dim * kMaxRun),
        v(head_dim * kMaxRun),
        table(Theta(head_dim), head_dim, layout, 5000) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto* values : {&q, &k, &v}) {
      for (float& value : *values) value = normal(random);
    }
  }

  int64_t x(int64_t row) const { return (row * 131 + 17) % 4800; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(d)); }
  KeyRun run() const {
    return {.k = k.data(), .v = v.data(), .v_stride = kMaxRun, .n_keys = n_keys, .head_dim = d};
  }

  std::vector<RotatedRow> Rows(std::vector<float>& states, int64_t begin, int64_t end, bool causal) const {
    states.assign(n_rows * StateFloats(d), 0);
    std::vector<RotatedRow> rows;
    for (int64_t r = 0; r < n_rows; ++r) {
      float* const state = states.data() + r * StateFloats(d);
      ClearState(state, d);
      const int64_t last = causal ? begin + 1 + (r * 7) % (end - begin) : end;
      rows.push_back(
          {q.data() + r * d, x(r), scale(), static_cast<int32_t>(begin), static_cast<int32_t>(last), state});
    }
    return rows;
  }

  struct Exact {
    std::vector<double> out;
    Magnitudes of;
  };
  Exact Expected(const RotatedRow& row) const {
    std::vector<double> rotated(d), sizes(d), out(d);
    const std::vector<double> theta = Theta(d);
    for (int64_t m = 0; m < d; ++m) {
      const int64_t p = table.partner(m);
      const int64_t pair = table.layout() == PairLayout::kInterleaved ? m / 2 : m % (d / 2);
      const double angle = static_cast<double>(row.x) * theta[pair];
      rotated[m] = row.q[m] * std::cos(angle) + row.q[p] * (m < p ? -std::sin(angle) : std::sin(angle));
      sizes[m] = std::abs(row.q[m]) + std::abs(row.q[p]);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    double sum = 0;
    Magnitudes of;
    for (int64_t j = row.key_begin; j < row.key_end; ++j) {
      double logit = 0, squares = 0;
      for (int64_t m = 0; m < d; ++m) {
        logit += rotated[m] * k[j * d + m];
        squares += std::pow(sizes[m] * k[j * d + m], 2);
        of.value = std::max(of.value, static_cast<double>(std::abs(v[m * kMaxRun + j])));
      }
      of.logit = std::max(of.logit, std::abs(logit * scale));
      of.terms = std::max(of.terms, std::sqrt(squares) * scale);
      const double p = std::exp(logit * scale);
      sum += p;
      for (int64_t m = 0; m < d; ++m) out[m] += p * v[m * kMaxRun + j];
    }
    for (double& o : out) o /= sum;
    return {std::move(out), of};
  }
};

// Pages of bfloat16 one after the other, and the same numbers as one case of float32.
struct PagesCase {
  std::vector<Case> cases;  // one for each page
  std::vector<BFloat16> numbers;
  std::vector<Bf16Page> pages;
  int64_t d;
  int64_t n_keys;

  PagesCase(int64_t head_dim, int64_t rows, int64_t keys, PairLayout layout = PairLayout::kHalfSplit)
      : d(head_dim), n_keys(keys) {
    const VectorKernels& conversions = FastestVectorKernels();
    const int64_t n_pages = (keys + kMaxRun - 1) / kMaxRun;
    numbers.resize(n_pages * 2 * kMaxRun * d);
    for (int64_t page = 0; page < n_pages; ++page) {
      Case& c = cases.emplace_back(d, rows, std::min(kMaxRun, keys - page * kMaxRun), layout,
                                   static_cast<unsigned>(page + 1));
      BFloat16* const to = numbers.data() + page * 2 * kMaxRun * d;
      for (auto [floats, at] : {std::pair(&c.k, to), std::pair(&c.v, to + kMaxRun * d)}) {
        conversions.to_bf16(floats->data(), kMaxRun * d, at);
        conversions.from_bf16(at, kMaxRun * d, floats->data());
      }
      c.q = cases[0].q;
      pages.push_back({.k = to, .v = to + kMaxRun * d});
    }
  }

  Bf16KeyPages all() const { return {.pages = pages, .n_keys = n_keys, .head_dim = d}; }
  // Rows begin in the first half of the keys and end anywhere behind.
  std::vector<RotatedRow> Rows(std::vector<float>& states) const {
    std::vector<RotatedRow> rows = cases[0].Rows(states, 0, 1, /*causal=*/false);
    for (int64_t r = 0; r < cases[0].n_rows; ++r) {
      RotatedRow& row = rows[r];
      row.key_begin = static_cast<int32_t>(r * 29 % (n_keys / 2 + 1));
      row.key_end = static_cast<int32_t>(n_keys - r * 353 % (n_keys - row.key_begin));
    }
    return rows;
  }
  // The states of the same rows by `attend`, page by page.
  void AttendInFloats(const AttentionKernels& kernels, std::span<const RotatedRow> rows,
                      float* workspace) const {
    for (std::size_t page = 0; page < pages.size(); ++page) {
      const auto from = static_cast<int32_t>(static_cast<int64_t>(page) * kMaxRun);
      std::vector<RotatedRow> here;
      for (RotatedRow row : rows) {
        row.key_begin = std::max(row.key_begin, from) - from;
        row.key_end = std::min<int32_t>(row.key_end - from, static_cast<int32_t>(kMaxRun));
        if (row.key_begin < row.key_end) here.push_back(row);
      }
      kernels.attend(here, cases[page].run(), cases[page].table, workspace);
    }
  }
};

class AttentionTest : public testing::TestWithParam<Implementation<AttentionKernels>> {
 protected:
  void SetUp() override {
    if (!GetParam().declined.empty()) GTEST_SKIP() << GetParam().declined;
  }
  const AttentionKernels& kernels() const { return *GetParam().table; }
  float* workspace() {
    workspace_.Reserve(AttendWorkspace(kernels().row_tile, kMaxHeadDim));
    return workspace_.data();
  }
  Buffer<float> workspace_;
};

TEST_P(AttentionTest, EqualsFloat64SoftmaxOnHostileShapes) {
  for (const PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalfSplit}) {
    for (const int64_t d : {16, 64, 80, 96, 128, 256}) {
      for (const int64_t n_rows : {1, 2, 3, 5, 15, 16, 17, 33}) {
        for (const int64_t n_keys : {1, 5, 6, 7, 255, 256}) {
          const Case c(d, n_rows, n_keys, layout);
          for (const bool causal : {false, true}) {
            for (const auto attend : {kernels().attend, kernels().attend_few}) {
              std::vector<float> states;
              const auto rows = c.Rows(states, n_keys / 3, n_keys, causal);
              attend(rows, c.run(), c.table, workspace());
              for (int64_t r = 0; r < n_rows; ++r) {
                std::vector<float> out(d);
                FinishState(rows[r].state, d, out.data());
                const auto [expected, of] = c.Expected(rows[r]);
                const double bound = of.Bound(d, n_keys);
                for (int64_t m = 0; m < d; ++m) ASSERT_NEAR(out[m], expected[m], bound) << d << " " << n_keys;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(AttentionTest, ARowDoesNotFeelItsTileMates) {
  const Case c(64, 37, 200, PairLayout::kInterleaved);
  std::vector<float> together, alone;
  const auto rows = c.Rows(together, 3, 200, true);
  kernels().attend(rows, c.run(), c.table, workspace());
  const auto same = c.Rows(alone, 3, 200, true);
  for (int64_t r = 36; r >= 0; --r) {
    kernels().attend(std::span(same).subspan(r, 1), c.run(), c.table, workspace());
  }
  EXPECT_EQ(0, std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)));
}

TEST_P(AttentionTest, OfFewNoneFeelsWhereOthersBegin) {
  for (const int64_t d : {16, 64, 80}) {
    for (const int64_t n_rows : {2, 3, 4, 7}) {
      for (const int64_t n_keys : {1, 24, 200, 256}) {
        const PagesCase pages(d, n_rows, n_keys);
        const Case& c = pages.cases[0];
        std::vector<float> together, alone;
        kernels().attend_few(pages.Rows(together), c.run(), c.table, workspace());
        const std::vector<RotatedRow> rows = pages.Rows(alone);
        for (int64_t r = 0; r < n_rows; ++r)
          kernels().attend_few(std::span(rows).subspan(r, 1), c.run(), c.table, workspace());
        EXPECT_EQ(together, alone) << d << " " << n_rows << " " << n_keys;
      }
    }
  }
}

TEST_P(AttentionTest, PartsMergeToOneSoftmax) {
  const Case c(64, 5, 256, PairLayout::kHalfSplit);
  std::vector<float> whole, parts, other;
  const auto all = c.Rows(whole, 0, 256, false);
  kernels().attend(all, c.run(), c.table, workspace());
  auto left = c.Rows(parts, 0, 100, false);
  auto right = c.Rows(other, 100, 256, false);
  kernels().attend(left, c.run(), c.table, workspace());
  kernels().attend(right, c.run(), c.table, workspace());
  std::vector<float> empty(StateFloats(64));
  ClearState(empty.data(), 64);
  for (int64_t r = 0; r < 5; ++r) {
    std::vector<float> a(parts.begin() + r * 66, parts.begin() + (r + 1) * 66);
    const std::vector<float> before = a;
    kernels().merge(a.data(), empty.data(), 64);  // the empty state changes nothing
    EXPECT_EQ(a, before);
    std::vector<float> from_empty = empty;
    kernels().merge(from_empty.data(), before.data(), 64);
    EXPECT_EQ(from_empty, before);
    kernels().merge(a.data(), other.data() + r * 66, 64);
    std::vector<float> merged(64), once(64);
    FinishState(a.data(), 64, merged.data());
    FinishState(whole.data() + r * 66, 64, once.data());
    // The same logits: what differs is the largest that powers are taken against, and the order of the sums.
    for (int m = 0; m < 64; ++m) EXPECT_NEAR(merged[m], once[m], 6 * Deviation(2 * (256 + 16), 1));
  }
}

TEST_P(AttentionTest, ABfloat16PageGivesTheBitsOfItsFloats) {
  const VectorKernels& conversions = FastestVectorKernels();
  for (const int64_t d : {16, 64, 80, 96, 128, 256}) {
    for (const int64_t n_rows : {1, 2, 3, 4, 5, 9}) {
      for (const int64_t n_keys : {1, 7, 8, 17, 256}) {
        Case c(d, n_rows, n_keys, PairLayout::kHalfSplit);
        std::vector<BFloat16> k(c.k.size()), v(c.v.size());
        conversions.to_bf16(c.k.data(), static_cast<int64_t>(k.size()), k.data());
        conversions.to_bf16(c.v.data(), static_cast<int64_t>(v.size()), v.data());
        conversions.from_bf16(k.data(), static_cast<int64_t>(k.size()), c.k.data());
        conversions.from_bf16(v.data(), static_cast<int64_t>(v.size()), c.v.data());
        std::vector<float> expected, states;
        kernels().attend_few(c.Rows(expected, n_keys / 3, n_keys, /*causal=*/true), c.run(), c.table,
                             workspace());
        kernels().attend_few_bf16(
            c.Rows(states, n_keys / 3, n_keys, /*causal=*/true),
            {.k = k.data(), .v = v.data(), .v_stride = kMaxRun, .n_keys = n_keys, .head_dim = d}, c.table,
            workspace());
        ASSERT_EQ(std::memcmp(states.data(), expected.data(), sizeof(float) * states.size()), 0)
            << "d " << d << ", rows " << n_rows << ", keys " << n_keys;
      }
    }
  }
}

// Numbers of channels, of which some stand apart, at ends of rows too. Channels may be so large or small that
// they cannot be multiplied from afar, and so may queries.
TEST_P(AttentionTest, APackedPageGivesTheBitsOfItsBfloats) {
  const VectorKernels& conversions = FastestVectorKernels();
  constexpr uint16_t kOne = 0x3f80, kExponent = 0x80;
  struct Kind {
    const char* name;
    bool any_apart;
    int key_power, value_power;  // of one channel in three
    bool zeros;                  // one channel of each
    float q;
  };
  constexpr Kind kKinds[] = {
      {"all have a code", false, 0, 0, false, 1},      {"some apart", true, 0, 0, false, 1},
      {"channels of zeros", true, 0, 0, true, 1},      {"large keys", false, 30, 0, false, 1e-12f},
      {"small keys", false, -111, 0, false, 1},        {"small values", true, 0, -60, false, 1},
      {"smallest values", false, 0, -111, false, 1},   {"large values", true, 0, 100, false, 1},
      {"too large a query", true, 0, 0, false, 1e37f}, {"a small query", true, 0, 0, false, 1e-37f},
  };
  for (const int64_t d : {16, 64, 80, 96, 128, 256}) {
    const PackedBf16Places places(d);
    for (const Kind& kind : kKinds) {
      Case c(d, /*n_rows=*/9, kMaxRun, PairLayout::kHalfSplit);
      for (float& q : c.q) q *= kind.q;
      std::vector<BFloat16> page(static_cast<std::size_t>(places.n_numbers));
      conversions.to_bf16(c.k.data(), places.n_numbers / 2, page.data());
      conversions.to_bf16(c.v.data(), places.n_numbers / 2, page.data() + places.n_numbers / 2);
      for (int64_t i = 0; i < places.n_numbers; ++i) {
        uint16_t& bits = page[static_cast<std::size_t>(i)].bits;
        const bool is_key = i < kMaxRun * d;
        const int64_t channel = is_key ? i % d : i / kMaxRun - d;
        // At least 2^-12 of one, with its sign, where not all are zero.
        const int size = std::max<int>(bits & 0x7fff, kOne - 12 * kExponent);
        const int power = channel % 3 == 1 ? (is_key ? kind.key_power : kind.value_power) : 0;
        bits = kind.zeros && channel == 5
                   ? 0
                   : static_cast<uint16_t>((bits & 0x8000) | (size + power * kExponent));
      }
      if (kind.any_apart) {
        for (const int64_t i : {int64_t{0}, 3 * d - 1, 3 * d, 100 * d + 5, 255 * d, 256 * d - 1, 256 * d,
                                256 * d + 255, 256 * d + 256, 300 * d + 7, 512 * d - 1}) {
          page[static_cast<std::size_t>(i)].bits = static_cast<uint16_t>(i % 2 == 0 ? 0x8000 : 0x0123);
        }
      }
      std::vector<std::byte> words(static_cast<std::size_t>(places.words_bytes)),
          rest(static_cast<std::size_t>(places.rest_bytes()));
      const PackedBf16Room packed{words.data(), rest.data()};
      ASSERT_TRUE(conversions.pack_bf16(page.data(), d, packed)) << kind.name;
      for (const int64_t n_rows : {1, 2, 3, 4, 5, 9}) {
        for (const auto& seen : {std::pair{0, 256}, {0, 1}, {5, 9}, {17, 250}, {63, 65}, {255, 256}}) {
          std::vector<float> expected, states;
          const auto rows_of = [&](std::vector<float>& of) {
            auto rows = c.Rows(of, seen.first, seen.second, /*causal=*/seen.second > 9);
            rows.resize(static_cast<std::size_t>(n_rows));
            return rows;
          };
          kernels().attend_few_bf16(rows_of(expected),
                                    {.k = page.data(),
                                     .v = page.data() + kMaxRun * d,
                                     .v_stride = kMaxRun,
                                     .n_keys = seen.second,
                                     .head_dim = d},
                                    c.table, workspace());
          kernels().attend_few_packed(
              rows_of(states), {.page = packed, .n_keys = seen.second, .head_dim = d, .next = page.data()},
              c.table, workspace());
          ASSERT_EQ(std::memcmp(states.data(), expected.data(), sizeof(float) * states.size()), 0)
              << kind.name << ", d " << d << ", rows " << n_rows << ", keys " << seen.first << " to "
              << seen.second;
        }
      }
    }
  }
}

// It is asked for and not read: nothing depends on what is there, or whether anything is.
TEST_P(AttentionTest, WhatIsReadNextChangesNothing) {
  for (const int64_t d : {16, 64, 256}) {
    for (const int64_t n_keys : {1, 8, 256}) {
      Case c(d, /*n_rows=*/3, n_keys, PairLayout::kHalfSplit);
      std::vector<float> expected;
      kernels().attend_few(c.Rows(expected, 0, n_keys, /*causal=*/true), c.run(), c.table, workspace());
      const std::vector<float> other(static_cast<std::size_t>(2 * kMaxRun * d));
      for (const void* const next :
           {static_cast<const void*>(other.data()), reinterpret_cast<const void*>(uintptr_t{8}),
            reinterpret_cast<const void*>(UINTPTR_MAX - 7)}) {
        KeyRun run = c.run();
        run.next = next;
        std::vector<float> states;
        kernels().attend_few(c.Rows(states, 0, n_keys, /*causal=*/true), run, c.table, workspace());
        EXPECT_EQ(states, expected) << d << " " << n_keys << " " << next;
      }
    }
  }
}

// Of few rows each by itself: what column_mass gives for that row alone, which sums to 1; the same bits from
// a bfloat16 page, and whichever rows stand beside it.
TEST_P(AttentionTest, MassesOfFewRowsAreThoseOfEach) {
  const VectorKernels& conversions = FastestVectorKernels();
  for (const int64_t d : {16, 64, 80, 256}) {
    for (const int64_t n_rows : {1, 2, 3, 4, 7}) {
      for (const int64_t n_keys : {1, 7, 17, 256}) {
        Case c(d, n_rows, n_keys, PairLayout::kHalfSplit);
        std::vector<BFloat16> k(c.k.size());
        conversions.to_bf16(c.k.data(), static_cast<int64_t>(k.size()), k.data());
        conversions.from_bf16(k.data(), static_cast<int64_t>(k.size()), c.k.data());
        std::vector<float> states;
        std::vector<RotatedRow> rows = c.Rows(states, n_keys / 3, n_keys, /*causal=*/true);
        kernels().attend_few(rows, c.run(), c.table, workspace());
        for (RotatedRow& row : rows) row.state += d;  // {max, sum}
        std::vector<float> masses(n_rows * kMaxRun), of_bf16(masses.size()), alone(masses.size());
        kernels().column_mass_few(rows, c.run(), c.table, masses.data(), workspace());
        kernels().column_mass_few_bf16(
            rows, {.k = k.data(), .v = nullptr, .v_stride = 0, .n_keys = n_keys, .head_dim = d}, c.table,
            of_bf16.data(), workspace());
        EXPECT_EQ(of_bf16, masses);
        for (int64_t r = 0; r < n_rows; ++r) {
          const auto row = std::span(rows).subspan(r, 1);
          kernels().column_mass_few(row, c.run(), c.table, alone.data() + r * kMaxRun, workspace());
          float column_mass[kMaxRun] = {};
          kernels().column_mass(row, c.run(), c.table, column_mass, workspace());
          double sum = 0;
          for (int64_t j = 0; j < kMaxRun; ++j) {
            const float mass = masses[r * kMaxRun + j];
            // Two orders of one logit's sum of d products; what a logit is off by, its power is.
            ASSERT_NEAR(mass, column_mass[j], 6 * Deviation(2 * (d + 8), 1)) << d << " " << r << " " << j;
            if (j < rows[r].key_begin || j >= rows[r].key_end) {
              ASSERT_EQ(mass, 0) << j;
            }
            sum += mass;
          }
          EXPECT_NEAR(sum, 1, 6 * Deviation(2 * (d + n_keys + 8), 1));
        }
        EXPECT_EQ(alone, masses);
      }
    }
  }
}

TEST_P(AttentionTest, AnEightBitPageGivesWhatItsFloatsDo) {
  const VectorKernels& conversions = FastestVectorKernels();
  for (const int64_t d : {16, 64, 80, 96, 128, 256}) {
    for (const int64_t n_rows : {1, 2, 3, 4, 5, 9}) {
      for (const int64_t n_keys : {1, 7, 8, 17, 256}) {
        Case c(d, n_rows, n_keys, PairLayout::kHalfSplit);
        std::vector<int8_t> k(c.k.size()), v(c.v.size());
        std::vector<float> k_scale(kMaxRun), v_scale(kMaxRun, 0.25f);
        for (int64_t j = 0; j < n_keys; ++j) {
          k_scale[j] = conversions.to_q8(c.k.data() + j * d, d, k.data() + j * d);
          conversions.from_q8(k.data() + j * d, k_scale[j], d, c.k.data() + j * d);
          v_scale[j] = static_cast<float>(j % 5 + 1) / 300;  // any: rounded once here, as the floats are
          for (int64_t m = 0; m < d; ++m) {
            const int64_t at = m * kMaxRun + j;
            v[at] = static_cast<int8_t>(std::clamp(c.v[at] / v_scale[j], -127.0f, 127.0f));
            c.v[at] = static_cast<float>(v[at]) * v_scale[j];
          }
        }
        std::vector<float> expected, states;
        kernels().attend_few(c.Rows(expected, n_keys / 3, n_keys, /*causal=*/true), c.run(), c.table,
                             workspace());
        kernels().attend_few_q8(
            c.Rows(states, n_keys / 3, n_keys, /*causal=*/true),
            {{.k = k.data(), .v = v.data(), .v_stride = kMaxRun, .n_keys = n_keys, .head_dim = d},
             k_scale.data(),
             v_scale.data()},
            c.table, workspace());
        for (int64_t r = 0; r < n_rows; ++r) {
          std::vector<float> few(d), floats(d);
          FinishState(states.data() + r * StateFloats(d), d, few.data());
          FinishState(expected.data() + r * StateFloats(d), d, floats.data());
          // The same sums of the same products, each rounded twice more; what a logit is off by, its power
          // is.
          for (int64_t m = 0; m < d; ++m) {
            ASSERT_NEAR(few[m], floats[m], 6 * Deviation(2 * (d + n_keys + 8), 1))
                << "d " << d << ", rows " << n_rows << ", keys " << n_keys;
          }
        }
      }
    }
  }
}

// Of those that have attend_bf16.
class Bf16ProductsTest : public AttentionTest {};

TEST_P(Bf16ProductsTest, EqualFloat64WithinTheirRounding) {
  for (const int64_t d : {16, 64, 80, 96, 128, 256}) {
    for (const int64_t n_rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 97}) {
      for (const int64_t n_keys : {1, 5, 7, 8, 9, 127, 128, 129, 255, 256}) {
        for (const PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalfSplit}) {
          const PagesCase c(d, n_rows, n_keys, layout);
          std::vector<float> states;
          const auto rows = c.Rows(states);
          kernels().attend_bf16(rows, c.all(), c.cases[0].table, workspace());
          for (int64_t r = 0; r < n_rows; ++r) {
            std::vector<float> out(d);
            FinishState(rows[r].state, d, out.data());
            const auto [expected, of] = c.cases[0].Expected(rows[r]);
            const double bound = of.Bf16Bound(d, n_keys);
            for (int64_t m = 0; m < d; ++m) ASSERT_NEAR(out[m], expected[m], bound) << d << " " << n_keys;
          }
        }
      }
    }
  }
}

TEST_P(Bf16ProductsTest, PagesTogetherEqualPagesMergedInFloats) {
  for (const int64_t d : {64, 80}) {
    for (const int64_t n_keys : {257, 384, 512, 600, 2048}) {
      const PagesCase c(d, 70, n_keys);
      std::vector<float> states, expected;
      const auto rows = c.Rows(states);
      kernels().attend_bf16(rows, c.all(), c.cases[0].table, workspace());
      const auto in_floats = c.Rows(expected);
      c.AttendInFloats(kernels(), in_floats, workspace());
      for (int64_t r = 0; r < 70; ++r) {
        std::vector<float> out(d), floats(d);
        FinishState(rows[r].state, d, out.data());
        FinishState(in_floats[r].state, d, floats.data());
        Magnitudes of;
        for (const Case& page : c.cases) {
          RotatedRow all = rows[r];
          all.key_begin = 0;
          all.key_end = static_cast<int32_t>(page.n_keys);
          of.Raise(page.Expected(all).of);
        }
        const double bound = of.Bf16Bound(d, n_keys);
        for (int64_t m = 0; m < d; ++m) ASSERT_NEAR(out[m], floats[m], bound) << d << " " << n_keys;
      }
    }
  }
}

// Their bounds are as wide as the mean of many values. What follows is exact but for roundings of sums.
TEST_P(Bf16ProductsTest, RowsThatWeighAllKeysAlikeGetTheMeanOfTheirValues) {
  for (const int64_t n_keys : {1, 8, 255, 257, 600, 2048}) {
    PagesCase c(64, 70, n_keys);
    for (float& q : c.cases[0].q) q = 0;
    std::vector<float> states;
    const auto rows = c.Rows(states);
    kernels().attend_bf16(rows, c.all(), c.cases[0].table, workspace());
    for (const RotatedRow& row : rows) {
      std::vector<float> out(64);
      FinishState(row.state, 64, out.data());
      for (int64_t m = 0; m < 64; ++m) {
        double sum = 0, size = 0;
        for (int64_t j = row.key_begin; j < row.key_end; ++j) {
          const double v = c.cases[j / kMaxRun].v[m * kMaxRun + j % kMaxRun];
          sum += v;
          size += std::abs(v);
        }
        const double n = row.key_end - row.key_begin;
        ASSERT_NEAR(out[m], sum / n, (Gamma(n) + Gamma(4)) * size / n) << n_keys << " " << m;
      }
    }
  }
}

TEST_P(Bf16ProductsTest, AKeyThatOutweighsAllOthersGivesItsValue) {
  constexpr int64_t kKeys = 2000, kRows = 70;
  for (const int64_t d : {64, 80}) {
    PagesCase c(d, kRows, kKeys);
    std::vector<float> states;
    std::vector<RotatedRow> rows = c.Rows(states);
    for (int64_t r = 0; r < kRows; ++r) {
      // The r-th row's own key, among those that it sees: eight times what its rotated query is.
      RotatedRow& row = rows[r];
      const int64_t own = row.key_begin + (row.key_end - row.key_begin - 1) * (r % 8) / 7;
      BFloat16* const at = c.numbers.data() + own / kMaxRun * 2 * kMaxRun * d + own % kMaxRun * d;
      const std::vector<BFloat16> before(at, at + d);
      std::vector<float> key(d);
      kernels().rotate(row.q, row.x, c.cases[0].table, key.data());
      for (float& k : key) k *= 8;
      FastestVectorKernels().to_bf16(key.data(), d, at);
      kernels().attend_bf16(std::span(rows).subspan(r, 1), c.all(), c.cases[0].table, workspace());
      std::copy(before.begin(), before.end(), at);
      std::vector<float> out(d);
      FinishState(row.state, d, out.data());
      // Its logit is 8 |q|^2 / sqrt(d), above 30 for all rows here, and the others' are below 8: all together
      // they weigh less than 2000 exp(-22).
      for (int64_t m = 0; m < d; ++m)
        ASSERT_NEAR(out[m], c.cases[own / kMaxRun].v[m * kMaxRun + own % kMaxRun], 1e-5) << r << " " << m;
    }
  }
}

TEST_P(Bf16ProductsTest, ARowFeelsNoTileMatesWhoseLogitsGrow) {
  for (const int64_t d : {64, 80, 256}) {
    PagesCase c(d, 97, 1500);
    // Logits of every third row differ by hundreds, so that some key far behind outweighs all before it.
    for (int64_t r = 0; r < 97; r += 3) {
      for (int64_t m = 0; m < d; ++m) c.cases[0].q[r * d + m] *= 100;
    }
    std::vector<float> together, alone;
    kernels().attend_bf16(c.Rows(together), c.all(), c.cases[0].table, workspace());
    const auto rows = c.Rows(alone);
    for (int64_t r = 0; r < 97; ++r)
      kernels().attend_bf16(std::span(rows).subspan(r, 1), c.all(), c.cases[0].table, workspace());
    EXPECT_EQ(together, alone) << d;
  }
}

TEST_P(Bf16ProductsTest, ARowOfPagesFeelsNeitherItsTileMatesNorWhatWasThereBefore) {
  const PagesCase c(64, 97, 1500);
  std::vector<float> together, alone;
  const auto rows = c.Rows(together);
  kernels().attend_bf16(rows, c.all(), c.cases[0].table, workspace());
  const auto same = c.Rows(alone);
  for (const auto& [begin, n] : {std::pair(96, 1), {60, 36}, {40, 20}, {3, 37}, {2, 1}, {0, 2}}) {
    kernels().attend_bf16(std::span(same).subspan(begin, n), c.all(), c.cases[0].table, workspace());
  }
  EXPECT_EQ(0, std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)));
  // Once more into the same states: two softmaxes over the same keys merge to the same output.
  kernels().attend_bf16(rows, c.all(), c.cases[0].table, workspace());
  for (int64_t r = 0; r < 97; ++r) {
    std::vector<float> once(64), twice(64);
    FinishState(same[r].state, 64, once.data());
    FinishState(rows[r].state, 64, twice.data());
    for (int m = 0; m < 64; ++m) EXPECT_NEAR(twice[m], once[m], Gamma(8) * 8);
  }
}

// Of a page that is being filled, whose memory may hold anything.
TEST_P(Bf16ProductsTest, KeysBehindTheLastAreNotFelt) {
  for (const int64_t d : {64, 80}) {
    for (const int64_t n_keys : {1, 31, 32, 100, 250}) {
      PagesCase c(d, 20, n_keys);
      std::vector<float> clean, beside;
      kernels().attend_bf16(c.Rows(clean), c.all(), c.cases[0].table, workspace());
      constexpr BFloat16 kNoNumber = {0x7FC0};
      std::fill(c.numbers.begin() + n_keys * d, c.numbers.begin() + kMaxRun * d, kNoNumber);
      kernels().attend_bf16(c.Rows(beside), c.all(), c.cases[0].table, workspace());
      EXPECT_EQ(clean, beside) << d << " " << n_keys;
    }
  }
}

TEST_P(Bf16ProductsTest, LargeLogitsDoNotOverflow) {
  PagesCase c(64, 17, 400);
  for (float& q : c.cases[0].q) q *= 1000;
  std::vector<float> states;
  kernels().attend_bf16(c.Rows(states), c.all(), c.cases[0].table, workspace());
  for (float s : states) EXPECT_TRUE(std::isfinite(s));
}

TEST_P(AttentionTest, LargeLogitsDoNotOverflow) {
  Case c(64, 17, 256, PairLayout::kInterleaved);
  for (float& q : c.q) q *= 1000;
  std::vector<float> states;
  const auto rows = c.Rows(states, 0, 256, true);
  kernels().attend(rows, c.run(), c.table, workspace());
  for (float s : states) EXPECT_TRUE(std::isfinite(s));
}

TEST_P(AttentionTest, ScoresArePlainDotProducts) {
  const Case c(96, 19, 256, PairLayout::kInterleaved);
  std::vector<const float*> q;
  for (int64_t r = 0; r < 19; ++r) q.push_back(c.q.data() + r * 96);
  for (const int64_t d : {96, 91}) {
    for (const int64_t n : {1, 7, 63, 256}) {
      std::vector<float> scores(19 * 300, -1), one(300);
      kernels().scores(q, c.k.data(), n, d, scores.data(), 300, workspace());
      for (int64_t r = 0; r < 19; ++r) {
        for (int64_t j = 0; j < n; ++j) {
          double expected = 0, size = 0;
          for (int64_t m = 0; m < d; ++m) {
            const double term = static_cast<double>(c.q[r * 96 + m]) * c.k[j * d + m];
            expected += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(scores[r * 300 + j], expected, Gamma(d) * size);
        }
        EXPECT_EQ(scores[r * 300 + n], -1);  // nothing behind it is touched
        kernels().scores(std::span(q).subspan(r, 1), c.k.data(), n, d, one.data(), 300, workspace());
        EXPECT_EQ(0, std::memcmp(one.data(), scores.data() + r * 300, n * sizeof(float)));
      }
    }
  }
}

TEST_P(AttentionTest, ScoresOfColumnsAreThoseOfRows) {
  constexpr int64_t kMostRows = 61;
  const Case c(96, kMostRows, kScoredTogether, PairLayout::kInterleaved);
  std::vector<const float*> q;
  for (int64_t r = 0; r < kMostRows; ++r) q.push_back(c.q.data() + r * 96);
  for (const int64_t d : {96, 91}) {
    Buffer<float> columns(d * kScoredTogether);
    for (int64_t j = 0; j < kScoredTogether; ++j) {
      for (int64_t m = 0; m < d; ++m) columns[m * kScoredTogether + j] = c.k[j * d + m];
    }
    std::vector<float> of_rows(kMostRows * kScoredTogether);
    kernels().scores(q, c.k.data(), kScoredTogether, d, of_rows.data(), kScoredTogether, workspace());
    for (const int64_t n_rows : {1, 2, 3, 4, 5, 7, 11, 13, 24, 27, 61}) {
      for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
               {0, 64}, {0, 1}, {5, 6}, {63, 64}, {0, 40}, {17, 64}, {16, 32}, {7, 57}, {8, 8}}) {
        constexpr int64_t kStride = 70;
        std::vector<float> scores(kMostRows * kStride, -1);
        kernels().scores_of_columns(std::span(q).first(static_cast<std::size_t>(n_rows)), columns.data(),
                                    begin, end, d, scores.data(), kStride, workspace());
        for (int64_t r = 0; r < kMostRows; ++r) {
          for (int64_t j = 0; j < kStride; ++j) {
            const bool asked = r < n_rows && j < end - begin;
            const float expected =
                asked ? of_rows[static_cast<std::size_t>(r * kScoredTogether + begin + j)] : -1;
            ASSERT_EQ(scores[static_cast<std::size_t>(r * kStride + j)], expected)
                << n_rows << " rows, columns " << begin << " to " << end << ", " << d;
          }
        }
      }
    }
  }
}

std::vector<Implementation<AttentionKernels>> WithBf16Products() {
  std::vector<Implementation<AttentionKernels>> list;
  for (const auto& implementation : AttentionImplementations()) {
    if (implementation.table->attend_bf16 != nullptr) list.push_back(implementation);
  }
  list.push_back(EmulatedAmxAttention());
  return list;
}

INSTANTIATE_TEST_SUITE_P(Every, Bf16ProductsTest, testing::ValuesIn(WithBf16Products()),
                         [](const auto& p) { return std::string(p.param.name); });
INSTANTIATE_TEST_SUITE_P(Every, AttentionTest,
                         testing::ValuesIn(AttentionImplementations().begin(),
                                           AttentionImplementations().end()),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace longheads
