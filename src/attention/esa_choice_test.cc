// ESA's choice of tokens by hand-computed scores, and against the definition written down naively, on every
// implementation of the kernels.
#include "attention/esa_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "tests/support/layer_inputs.h"

namespace longheads {
namespace {

// Keys that lie in one array: [n_parts][n_tokens, floats], in whole pages.
struct ArrayKeys : EsaKeys {
  ArrayKeys(int64_t n, int64_t parts, int64_t width)
      : n_tokens((n + kPageTokens - 1) / kPageTokens * kPageTokens),
        floats(width),
        values(static_cast<std::size_t>(parts * n_tokens * width)) {}

  const float* Page(int64_t part, int64_t page, float*) const override {
    return values.data() + (part * n_tokens + page * kPageTokens) * floats;
  }
  float* of(int64_t part, int64_t token) { return values.data() + (part * n_tokens + token) * floats; }

  int64_t n_tokens;
  int64_t floats;
  std::vector<float> values;
};

std::vector<int32_t> Choose(const EsaQuestion& question, const AttentionKernels& kernels, int n_threads = 1) {
  ThreadPool pool(n_threads);
  EsaChoice choice;
  std::vector<int32_t> chosen(static_cast<std::size_t>(question.k));
  EXPECT_TRUE(choice.Choose(question, kernels, pool, nullptr, chosen.data()));
  return chosen;
}

void ForEachKernels(const std::function<void(const AttentionKernels&)>& test) {
  for (const auto& kernels : AttentionImplementations()) {
    if (!kernels.declined.empty()) continue;
    SCOPED_TRACE(kernels.name);
    test(*kernels.table);
  }
}

// One query for which token begin + i has the importance given.
std::vector<int32_t> ChooseByImportance(const std::vector<float>& importance, int64_t begin, int64_t k,
                                        int64_t eps, const AttentionKernels& kernels) {
  constexpr int64_t kFloats = 16;
  const auto n = static_cast<int64_t>(importance.size());
  ArrayKeys keys(begin + n + 1, 1, kFloats);
  for (int64_t j = 0; j < keys.n_tokens; ++j) *keys.of(0, j) = 1000;  // outside the middle: never asked for
  for (int64_t i = 0; i < n; ++i) *keys.of(0, begin + i) = importance[static_cast<std::size_t>(i)];
  std::vector<float> query(kFloats);
  query[0] = 1;
  return Choose({.keys = &keys,
                 .floats = kFloats,
                 .rows = query.data(),
                 .n_queries = 1,
                 .begin = begin,
                 .end = begin + n,
                 .k = k,
                 .eps = eps},
                kernels);
}

TEST(EsaChoice, TakesTheLargerSmoothedScoreThenTheLargerScoreThenTheLowerToken) {
  // Smoothed with eps = 1: 5 5 5 4 4 4 3 3.
  const std::vector<float> importance = {0, 5, 1, 1, 4, 1, 1, 3};
  ForEachKernels([&](const AttentionKernels& kernels) {
    for (const int32_t begin : {0, 3, 254, 300}) {
      const auto expect = [&](int64_t k, int64_t eps, std::vector<int32_t> expected) {
        for (int32_t& token : expected) token += begin;
        EXPECT_EQ(ChooseByImportance(importance, begin, k, eps, kernels), expected) << begin << " " << k;
      };
      expect(1, 1, {1});
      expect(2, 1, {1, 2});
      expect(3, 1, {0, 1, 2});
      expect(4, 1, {0, 1, 2, 4});
      expect(5, 1, {0, 1, 2, 3, 4});
      expect(7, 1, {0, 1, 2, 3, 4, 5, 7});
      expect(3, 0, {1, 4, 7});
      expect(4, 0, {1, 2, 4, 7});
      expect(4, 100, {1, 2, 4, 7});
    }
  });
}

TEST(EsaChoice, CountsEachQuerysScoresFromItsBest) {
  // The first query's products are large: token 2's 9 is one below its best, as token 1's 1 is the other's
  // best.
  ArrayKeys keys(3, 1, 16);
  const float products[2][3] = {{10, 0, 9}, {0, 1, 0}};
  for (int64_t j = 0; j < 3; ++j) {
    for (int64_t c = 0; c < 2; ++c) keys.of(0, j)[c] = products[c][j];
  }
  std::vector<float> queries(32);
  queries[0] = queries[16 + 1] = 1;
  EXPECT_EQ(
      Choose(
          {.keys = &keys, .floats = 16, .rows = queries.data(), .n_queries = 2, .begin = 0, .end = 3, .k = 2},
          *AttentionImplementations().back().table),
      (std::vector<int32_t>{0, 1}));
}

// Against the definition, in float64; whole numbers as inputs, so that there is no rounding and there are
// ties.
TEST(EsaChoice, EqualsTheDefinitionOverPagesPartsAndThreads) {
  constexpr int64_t kTokens = 700, kParts = 2, kRows = 3, kQueries = 70, kFloats = 16;
  const auto whole = [](std::vector<float> values) {
    for (float& value : values) value = std::floor(value * 3);
    return values;
  };
  ArrayKeys keys(kTokens, kParts, kFloats);
  keys.values = whole(Uniform("k", 1, static_cast<int64_t>(keys.values.size())));
  for (const bool largest : {false, true}) {
    const int64_t rows_per_part = largest ? kRows : 1;
    const std::vector<float> rows = whole(Uniform("q", 2, kQueries * kParts * rows_per_part * kFloats));
    for (const auto& [begin, end, k, eps] : std::vector<std::array<int64_t, 4>>{
             {0, 700, 1, 0}, {0, 256, 255, 2}, {5, 600, 100, 0}, {255, 257, 1, 1}, {250, 699, 200, 3}}) {
      std::vector<double> s(static_cast<std::size_t>(end - begin), -1e300);
      for (int64_t c = 0; c < kQueries; ++c) {
        std::vector<double> f;
        for (int64_t j = begin; j < end; ++j) {
          double value = largest ? -1e300 : 0;
          for (int64_t part = 0; part < kParts; ++part) {
            for (int64_t r = 0; r < rows_per_part; ++r) {
              const float* const row = rows.data() + ((c * kParts + part) * rows_per_part + r) * kFloats;
              const double dot = std::inner_product(row, row + kFloats, keys.of(part, j), 0.0);
              value = largest ? std::max(value, dot) : value + dot;
            }
          }
          f.push_back(value);
        }
        const double best = *std::max_element(f.begin(), f.end());
        for (std::size_t m = 0; m < f.size(); ++m) s[m] = std::max(s[m], f[m] - best);
      }
      std::vector<std::tuple<double, double, int64_t>> order;
      for (int64_t m = 0; m < end - begin; ++m) {
        double near = -1e300;
        for (int64_t o = std::max<int64_t>(0, m - eps); o <= std::min(end - begin - 1, m + eps); ++o) {
          near = std::max(near, s[static_cast<std::size_t>(o)]);
        }
        order.emplace_back(-near, -s[static_cast<std::size_t>(m)], begin + m);
      }
      std::sort(order.begin(), order.end());
      std::set<int32_t> expected;
      for (int64_t i = 0; i < k; ++i) {
        expected.insert(static_cast<int32_t>(std::get<2>(order[static_cast<std::size_t>(i)])));
      }
      const EsaQuestion question{.keys = &keys,
                                 .n_parts = kParts,
                                 .floats = kFloats,
                                 .rows = rows.data(),
                                 .n_queries = kQueries,
                                 .rows_per_part = rows_per_part,
                                 .largest = largest,
                                 .begin = begin,
                                 .end = end,
                                 .k = k,
                                 .eps = eps};
      ForEachKernels([&](const AttentionKernels& kernels) {
        for (const int n_threads : {1, 3}) {
          EXPECT_EQ(Choose(question, kernels, n_threads),
                    std::vector<int32_t>(expected.begin(), expected.end()));
        }
      });
    }
  }
}

// More queries than are scored at a time: the halves choose what the best of both do.
TEST(EsaChoice, GoesThroughLongTextsPartByPart) {
  constexpr int64_t kTokens = 1 << 19, kQueries = 20;  // 8 queries at a time
  ArrayKeys keys(kTokens, 1, 1);
  keys.values = Uniform("k", 1, kTokens);
  *keys.of(0, 400'001) = 2;   // the best of the queries of positive sign
  *keys.of(0, 123'456) = -2;  // of the others, all in the last part
  std::vector<float> queries(kQueries, 1);
  queries.back() = -1;
  EXPECT_EQ(Choose({.keys = &keys,
                    .floats = 1,
                    .rows = queries.data(),
                    .n_queries = kQueries,
                    .begin = 10,
                    .end = kTokens - 10,
                    .k = 2},
                   *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table, 2),
            (std::vector<int32_t>{123'456, 400'001}));
}

TEST(EsaChoice, StopsWhereItIsCancelled) {
  ArrayKeys keys(300, 1, 16);
  const std::vector<float> query(16);
  ThreadPool pool(1);
  CancelToken cancel;
  cancel.Cancel();
  EsaChoice choice;
  int32_t chosen[2] = {-1, -1};
  EXPECT_FALSE(choice.Choose(
      {.keys = &keys, .floats = 16, .rows = query.data(), .n_queries = 1, .begin = 0, .end = 300, .k = 2},
      *AttentionImplementations().back().table, pool, &cancel, chosen));
  EXPECT_EQ(chosen[0], -1);
}

TEST(EsaChoice, HasAPlaceForNumbersThatAreNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<int32_t> chosen = ChooseByImportance({nan, 1, inf, nan, -inf, 2, nan, 3}, 250, 3, 1,
                                                         *AttentionImplementations().back().table);
  EXPECT_EQ(chosen.size(), 3u);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  EXPECT_GE(chosen.front(), 250);
  EXPECT_LT(chosen.back(), 258);
}

}  // namespace
}  // namespace longheads
