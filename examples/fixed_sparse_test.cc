// The example of docs/adding-a-method.md does what its definition says, and the page shows the code that is
// here.
#include "examples/fixed_sparse.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/method_case.h"

namespace longheads {
namespace {

std::shared_ptr<const Policy> Make(const std::vector<SpecOption>& options, std::string* refusal = nullptr) {
  AttentionModel model;
  model.shape = kCaseShape;
  model.trained_window = model.window = 64;
  const Method method = FixedSparseMethod();
  OptionReader reader(method.info, options);
  const Result<LayerPolicies> layers = method.create(reader, model);
  if (refusal != nullptr) *refusal = layers ? "" : layers.error().message;
  return layers ? layers->front() : nullptr;
}

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// Straight from the definition.
Pairs Expected(int64_t i, int64_t block, int64_t summary) {
  Pairs pairs;
  for (int64_t j = 0; j <= i; ++j) {
    if (j / block == i / block || j % block >= block - summary) {
      pairs.emplace_back(static_cast<int32_t>(j), static_cast<int32_t>(i - j));
    }
  }
  return pairs;
}

TEST(FixedSparse, SeesItsBlockAndTheEndsOfThoseBefore) {
  for (const auto& [block, summary] : {std::pair{8, 3}, std::pair{5, 5}, std::pair{7, 1}, std::pair{1, 1}}) {
    const auto policy = Make({{"block", std::to_string(block)}, {"summary", std::to_string(summary)}});
    for (const int64_t n : {1, 7, 8, 9, 16, 30}) {
      for (const bool decode : {false, true}) {
        EXPECT_EQ(LastSees(*policy, n, decode), Expected(n - 1, block, summary)) << block << ", " << n;
      }
    }
  }
}

TEST(FixedSparse, EqualsFullAttentionInsideABlock) {
  const auto policy = Make({{"block", "40"}, {"summary", "2"}});
  EXPECT_LE(DifferenceFromFull(*policy, 40), 1);
  EXPECT_GT(DifferenceFromFull(*policy, 41), 1);
}

TEST(FixedSparse, RefusesWhatCannotApply) {
  std::string refusal;
  Make({{"summary", "129"}}, &refusal);
  EXPECT_NE(refusal.find("summary=129 is more than the 128 tokens of a block"), std::string::npos) << refusal;
  Make({{"blocks", "4"}}, &refusal);
  EXPECT_NE(refusal.find("did you mean 'block'"), std::string::npos) << refusal;
}

std::string Read(const std::string& file) {
  std::ifstream stream(std::string(LONGHEADS_SOURCE_DIR) + "/" + file);
  EXPECT_TRUE(stream) << file;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(FixedSparse, IsWhatThePageShows) {
  const std::string page = Read("docs/adding-a-method.md");
  const std::string code = Read("examples/fixed_sparse.h") + Read("examples/fixed_sparse.cc") +
                           Read("examples/fixed_sparse_test.cc");
  const std::string fence = "```cpp\n";
  int n_blocks = 0;
  for (std::size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at)) {
    at += fence.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    EXPECT_NE(code.find(block), std::string::npos) << "no file of the example has:\n" << block;
    ++n_blocks;
  }
  EXPECT_GE(n_blocks, 3);
}

}  // namespace
}  // namespace longheads
