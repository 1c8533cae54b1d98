#include "base/checksum.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

namespace longheads {
namespace {

uint64_t Of(std::string_view text) { return Checksum(std::as_bytes(std::span(text))); }

// Values of the Python package xxhash 3.2.0 (xxh3_64_intdigest); one for each of the function's branches by
// length.
TEST(Checksum, IsXxh3WithSeedZero) {
  EXPECT_EQ(Checksum({}), 0x2d06800538d394c2u);
  EXPECT_EQ(Of("abc"), 0x78af5f94892f3950u);
  EXPECT_EQ(Of("longheads"), 0x3c5d0ef1506eaac2u);
  std::vector<uint8_t> counted(5000);
  std::iota(counted.begin(), counted.end(), uint8_t{0});
  EXPECT_EQ(Checksum(std::as_bytes(std::span(counted)).first(100)), 0x4e4f921a64bd1cu);
  EXPECT_EQ(Checksum(std::as_bytes(std::span(counted)).first(200)), 0xf42a8864feaf0703u);
  EXPECT_EQ(Checksum(std::as_bytes(std::span(counted))), 0x1b74bda2c82a8c7au);
}

TEST(Checksum, IsThatOfTwoPartsToo) {
  std::vector<uint8_t> counted(5000);
  std::iota(counted.begin(), counted.end(), uint8_t{0});
  const std::span<const std::byte> all = std::as_bytes(std::span(counted));
  for (const std::size_t n : {0, 1, 100, 240, 241, 1024, 4999, 5000}) {
    EXPECT_EQ(Checksum(all.first(n), all.subspan(n)), Checksum(all)) << n;
    EXPECT_EQ(Checksum(all.first(n / 2), all.subspan(n / 2, n - n / 2)), Checksum(all.first(n))) << n;
  }
}

}  // namespace
}  // namespace longheads
