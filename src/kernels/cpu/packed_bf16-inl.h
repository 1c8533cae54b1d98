// Blocks of a packed page (kernels/packed_bf16.h) in Highway. Included once for each target.

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/kv_limits.h"
#include "kernels/packed_bf16.h"

#if defined(LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_
#undef LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_
#else
#define LONGHEADS_KERNELS_CPU_PACKED_BF16_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace longheads::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Numbers = hn::ScalableTag<int16_t>;
constexpr Numbers kNumbers;
constexpr int64_t kNumberLanes = HWY_MAX_BYTES / sizeof(int16_t);
constexpr int64_t kHalfBlock = kPackedBlock / 2;
static_assert(kHalfBlock % kNumberLanes == 0 && kMaxRun % kPackedBlock == 0);

// K's bases side by side, as often as the blocks that begin with one of its columns want, and V's.
struct PackedBases {
  static constexpr int64_t kColumns = kMaxHeadDim + kPackedBlock;
  HWY_ALIGN int16_t of_columns[kColumns];
  const int16_t* of_rows;

  PackedBases(const int16_t* bases, int64_t head_dim) : of_rows(bases + head_dim) {
    for (int64_t i = 0; i < head_dim + kPackedBlock; i += head_dim) {
      std::copy_n(bases, std::min(head_dim, head_dim + kPackedBlock - i), of_columns + i);
    }
  }
};

// block(first, base) of the blocks of n_keys whole keys that begin with number `first`: base(j) is what
// numbers first + j, ... count from. n_keys: a multiple of four.
template <typename Block>
HWY_INLINE void ForEachBlockOfKeys(int64_t first, int64_t n_keys, int64_t head_dim, const PackedBases& bases,
                                   const Block& block) {
  int64_t column = 0;
  for (const int64_t end = first + n_keys * head_dim; first < end; first += kPackedBlock) {
    const int16_t* const of_block = bases.of_columns + column;
    block(first, [of_block](int64_t j) HWY_ATTR { return hn::LoadU(kNumbers, of_block + j); });
    for (column += kPackedBlock; column >= head_dim;) column -= head_dim;
  }
}

// The same of blocks [first, end) of V's row m.
template <typename Block>
HWY_INLINE void ForEachBlockOfValues(int64_t first, int64_t end, int64_t m, const PackedBases& bases,
                                     const Block& block) {
  const auto base = hn::Set(kNumbers, bases.of_rows[m]);
  for (; first < end; first += kPackedBlock) block(first, [base](int64_t) HWY_ATTR { return base; });
}

// A block's numbers, those that stand apart excepted, from its bytes and its codes.
template <typename Base>
HWY_INLINE void UnpackBlock(const int8_t* HWY_RESTRICT numbers, const uint8_t* HWY_RESTRICT codes,
                            const Base& base, int16_t* HWY_RESTRICT to) {
  const hn::Rebind<uint8_t, Numbers> bytes;
  const auto kept = hn::Set(kNumbers, static_cast<int16_t>(0x807f));
  const auto code_bits = hn::Set(kNumbers, int16_t{0x780});
  const auto give = [&](int64_t j, auto exponent) HWY_ATTR {
    // The sign comes to the upper byte as the eight bits become sixteen.
    const auto number =
        hn::PromoteTo(kNumbers, hn::LoadU(hn::RebindToSigned<decltype(bytes)>(), numbers + j));
    const auto above = hn::Add(hn::And(exponent, code_bits), base(j));
    hn::StoreU(hn::Add(hn::And(number, kept), above), kNumbers, to + j);
  };
  for (int64_t j = 0; j < kHalfBlock; j += kNumberLanes) {
    const auto of_both = hn::PromoteTo(kNumbers, hn::LoadU(bytes, codes + j));
    give(j, hn::ShiftLeft<7>(of_both));
    give(kHalfBlock + j, hn::ShiftLeft<3>(of_both));
  }
}

}  // namespace
}  // namespace longheads::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
