#include "attention/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace longheads {
namespace {

std::vector<int32_t> Chosen(const std::vector<float>& scores, int64_t count) {
  TopK top_k;
  std::vector<int32_t> chosen;
  top_k.Choose(scores.data(), static_cast<int64_t>(scores.size()), count, chosen);
  return chosen;
}

TEST(TopK, TakesTheLargestAscending) {
  EXPECT_EQ(Chosen({-1, 3, 2, -5, 2.5f}, 3), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(Chosen({-1, -3, -2}, 1), (std::vector<int32_t>{0}));
  EXPECT_EQ(Chosen({-1, -3, -2}, 0), (std::vector<int32_t>{}));
  EXPECT_EQ(Chosen({-1, -3}, 2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Chosen({-1, -3}, 5), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Chosen({}, 5), (std::vector<int32_t>{}));
}

TEST(TopK, TakesTheLowerOfEqualOnes) {
  EXPECT_EQ(Chosen({1, 2, 1, 2, 1, 1}, 4), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Chosen({-0.0f, 0.0f, -0.0f, 0.0f}, 2), (std::vector<int32_t>{0, 1}));
  const float most = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Chosen({-most, most, 1, most, -most}, 4), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(TopK, FindsWhatLiesNextToZero) {
  EXPECT_EQ(Chosen({-0.0f, 1, 1.4e-45f}, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Chosen({-1.4e-45f, -0.0f, 1.4e-45f, 0.0f, 2.8e-45f}, 3), (std::vector<int32_t>{1, 2, 4}));
}

TEST(TopK, FindsItsWayAmongFarOutliers) {
  std::vector<float> scores;
  for (int i = 0; i < 200; ++i) scores.push_back(static_cast<float>(i * 37 % 200) * 1e-30f);
  for (const float outlier : {1e30f, -1e38f, -std::numeric_limits<float>::infinity()}) {
    scores[57] = outlier;
    scores[3] = -outlier;
    std::vector<int32_t> order(200);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    for (const int64_t count : {1, 2, 3, 50, 198, 199}) {
      std::vector<int32_t> best(order.begin(), order.begin() + count);
      std::sort(best.begin(), best.end());
      EXPECT_EQ(Chosen(scores, count), best) << outlier << " " << count;
    }
  }
}

// Few distinct scores and many, some of them no numbers, which are the worst.
std::vector<float> Scores(std::mt19937& random, int64_t n, uint32_t n_distinct) {
  std::vector<float> scores;
  for (int64_t i = 0; i < n; ++i) {
    const auto drawn = static_cast<float>(random() % n_distinct);
    scores.push_back(random() % 9 == 0   ? std::numeric_limits<float>::quiet_NaN()
                     : random() % 9 == 0 ? -std::numeric_limits<float>::infinity()
                                         : drawn - static_cast<float>(n_distinct) / 2);
  }
  return scores;
}

enum class Order { kAny, kAscending, kDescending };

TEST(TopK, AppendsAndEqualsASortedList) {
  std::mt19937 random(1);
  TopK top_k;
  for (const int64_t n : {1, 2, 15, 16, 17, 63, 500, 3001}) {
    for (const uint32_t n_distinct : {1u, 40u, 1u << 20}) {
      for (const Order order_of : {Order::kAny, Order::kAscending, Order::kDescending}) {
        std::vector<float> scores = Scores(random, n, n_distinct);
        const auto worse = [](float a, float b) { return Comparable(a) < Comparable(b); };
        if (order_of != Order::kAny) std::stable_sort(scores.begin(), scores.end(), worse);
        if (order_of == Order::kDescending) std::reverse(scores.begin(), scores.end());
        std::vector<int32_t> order;
        for (int32_t i = 0; i < n; ++i) order.push_back(i);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return worse(scores[static_cast<std::size_t>(b)], scores[static_cast<std::size_t>(a)]);
        });
        for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{14}, n / 3, n - 1, n}) {
          const auto taken = static_cast<std::ptrdiff_t>(std::min(n, count));
          const auto until = static_cast<std::ptrdiff_t>(std::min(n, 2 * count));
          std::vector<int32_t> expected(order.begin(), order.begin() + taken);
          std::sort(expected.begin(), expected.end());
          expected.insert(expected.begin(), 7);
          std::vector<int32_t> chosen = {7};
          top_k.Choose(scores.data(), n, count, chosen);
          ASSERT_EQ(chosen, expected) << n << " " << count << " " << static_cast<int>(order_of);
          std::vector<int32_t> next(order.begin() + taken, order.begin() + until);
          std::sort(next.begin(), next.end());
          std::vector<int32_t> nearly;
          chosen = {7};
          top_k.Choose(scores.data(), n, count, chosen, &nearly);
          ASSERT_EQ(chosen, expected) << n << " " << count << " " << static_cast<int>(order_of);
          std::sort(nearly.begin(), nearly.end());
          ASSERT_EQ(nearly, next) << n << " " << count << " " << static_cast<int>(order_of);
        }
      }
    }
  }
}

// Few or none are better than the worst there can be.
TEST(TopK, TakesTheFirstOfTheWorst) {
  const float worst = -std::numeric_limits<float>::infinity();
  for (const float score : {worst, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> scores(500, score);
    EXPECT_EQ(Chosen(scores, 1), (std::vector<int32_t>{0}));
    EXPECT_EQ(Chosen(scores, 3), (std::vector<int32_t>{0, 1, 2}));
    scores[400] = 1;
    EXPECT_EQ(Chosen(scores, 1), (std::vector<int32_t>{400}));
    EXPECT_EQ(Chosen(scores, 3), (std::vector<int32_t>{0, 1, 400}));
  }
}

}  // namespace
}  // namespace longheads
