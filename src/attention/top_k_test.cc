#include "attention/top_k.h"

#include <gtest/gtest.h>

#include <limits>
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

TEST(TopK, AppendsAndEqualsASortedList) {
  std::mt19937 random(1);
  TopK top_k;
  for (const int64_t n : {1, 2, 63, 500}) {
    std::vector<float> scores;
    for (int64_t i = 0; i < n; ++i) scores.push_back(static_cast<float>(random() % 40) - 20);
    std::vector<int32_t> order;
    for (int32_t i = 0; i < n; ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
    for (const int64_t count : {int64_t{0}, int64_t{1}, n / 3, n - 1, n}) {
      std::vector<int32_t> expected(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
      std::sort(expected.begin(), expected.end());
      expected.insert(expected.begin(), 7);
      std::vector<int32_t> chosen = {7};
      top_k.Choose(scores.data(), n, count, chosen);
      EXPECT_EQ(chosen, expected) << n << " " << count;
    }
  }
}

TEST(TopK, HasAPlaceForNaN) {
  std::vector<float> scores(100, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < scores.size(); i += 3) scores[i] = static_cast<float>(i);
  const std::vector<int32_t> chosen = Chosen(scores, 40);
  ASSERT_EQ(chosen.size(), 40u);
  EXPECT_LT(chosen.back(), 100);
  for (std::size_t i = 1; i < chosen.size(); ++i) EXPECT_LT(chosen[i - 1], chosen[i]);
}

}  // namespace
}  // namespace longheads
