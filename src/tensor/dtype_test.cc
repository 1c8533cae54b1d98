#include "tensor/dtype.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

TEST(BytesOf, CountsWholeBlocksOnly) {
  EXPECT_EQ(BytesOf(DType::kF32, 3), 12u);
  EXPECT_EQ(BytesOf(DType::kQ4_1, 64), 40u);
  EXPECT_EQ(BytesOf(DType::kQ6_K, 256), 210u);
  EXPECT_FALSE(BytesOf(DType::kQ4_0, 33));
  EXPECT_FALSE(BytesOf(DType::kF32, -1));
  EXPECT_FALSE(BytesOf(DType::kF32, INT64_MAX));
}

}  // namespace
}  // namespace longheads
