// The tiles that AMX's kernels run on in tests are what its instructions are defined as, and, where the
// processor has them, what it does.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#define LONGHEADS_TARGETS "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16,amx-int8"
#include "kernels/cpu/amx_tiles-inl.h"
#include "kernels/cpu/simd_kernels.h"
#include "tests/support/emulated_tiles-inl.h"

namespace longheads {
namespace {

constexpr int kSide = 32;  // of a block of sums

// left [kSide, 4 depth bytes], right [depth, kSide of four bytes], sums [kSide, kSide of four bytes].
struct Block {
  int depth;
  std::vector<uint32_t> left, right, sums;

  template <typename Bits>
  Block(int depth_of_tiles, const Bits& bits)
      : depth(depth_of_tiles), left(kSide * depth), right(depth * kSide), sums(kSide * kSide) {
    for (auto* words : {&left, &right, &sums}) {
      for (uint32_t& word : *words) word = bits();
    }
  }
};

float Float(uint32_t bits) { return std::bit_cast<float>(bits); }
float Flush(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

// One of the pair's numbers.
float Number(uint32_t pair, int which) { return Flush(Float(which == 0 ? pair << 16 : pair & 0xFFFF0000u)); }

uint32_t ExpectedBf16(const Block& block, int row, int column) {
  float sums[2] = {0, 0};
  for (int i = 0; i < block.depth; ++i) {
    for (int which = 0; which < 2; ++which) {
      const float left = Number(block.left[row * block.depth + i], which);
      sums[which] = Flush(std::fma(left, Number(block.right[i * kSide + column], which), sums[which]));
    }
  }
  const float before = Flush(Float(block.sums[row * kSide + column]));
  return std::bit_cast<uint32_t>(Flush(before + Flush(sums[0] + sums[1])));
}

uint32_t ExpectedInt8(const Block& block, int row, int column) {
  int64_t sum = block.sums[row * kSide + column];
  for (int i = 0; i < block.depth; ++i) {
    for (int shift = 0; shift < 32; shift += 8) {
      const auto left = static_cast<int8_t>(block.left[row * block.depth + i] >> shift);
      const auto right = static_cast<int8_t>(block.right[i * kSide + column] >> shift);
      sum += left * right;
    }
  }
  return static_cast<uint32_t>(sum);
}

enum class Product : uint8_t { kBf16, kInt8 };

}  // namespace
}  // namespace longheads

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads {
namespace {

// The block's product, of 2 x 2 tiles or of all of its tiles by themselves.
template <typename Tiles, int kI, int kJ>
std::vector<uint32_t> Multiply(Block block, Product product) {
  Tiles tiles(cpu::ShapesOfDepth(block.depth));
  for (int row = 0; row < kSide; row += 16 * kI) {
    for (int column = 0; column < kSide; column += 16 * kJ) {
      uint32_t* const sums = block.sums.data() + row * kSide + column;
      cpu::LoadSums<kI, kJ>(tiles, sums, 4 * kSide);
      cpu::LoadLeft<kI>(tiles, block.left.data() + row * block.depth, 4 * block.depth);
      cpu::LoadRight<kJ>(tiles, block.right.data() + column, 4 * kSide);
      if (product == Product::kBf16) {
        cpu::AddBf16<kI, kJ>(tiles);
      } else {
        cpu::AddInt8<kI, kJ>(tiles);
      }
      cpu::StoreSums<kI, kJ>(tiles, sums, 4 * kSide);
    }
  }
  return std::move(block.sums);
}

template <typename Tiles>
std::vector<uint32_t> Cleared() {
  std::vector<uint32_t> sums(kSide * kSide, 7);
  Tiles tiles(cpu::ShapesOfDepth(16));
  cpu::LoadSums<2, 2>(tiles, sums.data(), 4 * kSide);
  cpu::ClearSums<2, 2>(tiles);
  cpu::StoreSums<2, 2>(tiles, sums.data(), 4 * kSide);
  return sums;
}

}  // namespace
}  // namespace longheads

HWY_POP_ATTRIBUTES

namespace longheads {
namespace {

// Whose tiles they are.
struct Maker {
  const char* name;
  std::string declined;
  std::vector<uint32_t> (*together)(Block, Product);
  std::vector<uint32_t> (*apart)(Block, Product);
  std::vector<uint32_t> (*cleared)();
};

template <typename Tiles>
Maker MakerOf(const char* name, std::string declined) {
  return {name, std::move(declined), Multiply<Tiles, 2, 2>, Multiply<Tiles, 1, 1>, Cleared<Tiles>};
}

std::vector<Maker> Makers() {
  const std::string bf16 = cpu::DeclinedAmxBf16();
  return {MakerOf<cpu::EmulatedTiles>("emulated", cpu::Declined(HWY_AVX3)),
          MakerOf<cpu::AmxTiles>("amx", bf16.empty() ? cpu::DeclinedAmxInt8() : bf16)};
}

class AmxTilesTest : public testing::TestWithParam<Maker> {
 protected:
  void SetUp() override {
    if (!GetParam().declined.empty()) GTEST_SKIP() << GetParam().declined;
  }

  static void ExpectSums(const std::vector<uint32_t>& actual, const Block& block, Product product) {
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < kSide; ++column) {
        const uint32_t expected =
            product == Product::kBf16 ? ExpectedBf16(block, row, column) : ExpectedInt8(block, row, column);
        ASSERT_EQ(actual[row * kSide + column], expected) << block.depth << " " << row << " " << column;
      }
    }
  }

  static void ExpectProducts(const Block& block, Product product) {
    ExpectSums(GetParam().together(block, product), block, product);
    ExpectSums(GetParam().apart(block, product), block, product);
  }
};

constexpr int kDepths[] = {1, 4, 8, 15, 16};

TEST_P(AmxTilesTest, SumPairsOfBfloat16AsIntelDefines) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto number = [&] { return std::bit_cast<uint32_t>(normal(random)) >> 16; };
  for (const int depth : kDepths) {
    ExpectProducts(Block(depth, [&] { return number() | number() << 16; }), Product::kBf16);
  }
}

// Of numbers around the least normal one, and of any other exponents that give finite sums.
TEST_P(AmxTilesTest, FlushWhatIsTooSmallToBeNormal) {
  std::mt19937 random(2);
  struct Exponents {
    uint32_t from, n;
  };
  for (const Exponents some : {Exponents{0, 3}, {60, 4}, {0, 128}}) {
    const auto number = [&] {
      const uint32_t exponent = some.from + static_cast<uint32_t>(random()) % some.n;
      return (static_cast<uint32_t>(random()) & 0x807F) | exponent << 7;
    };
    for (int i = 0; i < 20; ++i) {
      ExpectProducts(Block(16, [&] { return number() | number() << 16; }), Product::kBf16);
    }
  }
}

TEST_P(AmxTilesTest, SumIntegersWithTheirSigns) {
  std::mt19937 random(3);
  for (const int depth : kDepths) {
    ExpectProducts(Block(depth, [&] { return static_cast<uint32_t>(random()); }), Product::kInt8);
    for (const uint32_t most : {0x80808080u, 0x7F7F7F7Fu, 0x7F80807Fu}) {
      ExpectProducts(Block(depth, [&] { return most; }), Product::kInt8);
    }
  }
}

TEST_P(AmxTilesTest, AreZeroWhenCleared) {
  EXPECT_EQ(GetParam().cleared(), std::vector<uint32_t>(kSide * kSide));
}

INSTANTIATE_TEST_SUITE_P(Every, AmxTilesTest, testing::ValuesIn(Makers()),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace longheads
