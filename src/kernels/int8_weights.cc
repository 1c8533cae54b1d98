#include "kernels/int8_weights.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/memory.h"
#include "kernels/block_formats.h"

namespace longheads {
namespace {

constexpr int64_t kColumns = 32;

// The integers of 32 columns of one output into the block's units, at byte 4 * output of each group.
void PackIntegers(const uint8_t* q, int bits, int64_t output, uint8_t* units) {
  for (int64_t i = 0; i < kColumns; ++i) {
    const int64_t group = i / 4;
    uint8_t* const at = units + 4 * output + i % 4;
    if (bits == 8) {
      at[64 * group] = q[i];
      continue;
    }
    at[64 * (group / 2)] |= static_cast<uint8_t>((q[i] & 15) << (group % 2 * 4));
    uint8_t* const high = at + 4 * 64;
    if (bits == 5) high[0] |= static_cast<uint8_t>((q[i] >> 4) << group);
    if (bits == 6) high[64 * (group / 4)] |= static_cast<uint8_t>((q[i] >> 4) << (group % 4 * 2));
  }
}

}  // namespace

Int8Weights::Int8Weights(DType type, int64_t n, int64_t k, std::shared_ptr<uint8_t> room)
    : type_(type), n_(n), k_(k), packed_(std::move(room)) {
  LH_CHECK(HasIntegers(type) && k % Info(type).block == 0);
}

std::shared_ptr<uint8_t> Int8Weights::Room(int64_t bytes) {
  AlignedMemory memory = AllocateAligned(static_cast<std::size_t>(bytes), kAlignment);
  const FreeAligned free = memory.get_deleter();
  return {reinterpret_cast<uint8_t*>(memory.release()),
          [free](uint8_t* p) { free(reinterpret_cast<std::byte*>(p)); }};
}

void Int8Weights::Pack(const std::byte* rows, int64_t tile) {
  const Int8Form form = FormOf(type_);
  const DTypeInfo& info = Info(type_);
  const int64_t row_bytes = k_ / info.block * info.block_bytes;
  uint8_t* const packed = packed_.get() + tile * tile_bytes();
  std::memset(packed, 0, static_cast<std::size_t>(tile_bytes()));
  for (int64_t output = 0; output < std::min(kTile, n_ - tile * kTile); ++output) {
    const std::byte* src = rows + (tile * kTile + output) * row_bytes;
    uint8_t* to = packed;
    const auto put_half = [&](int64_t at, const std::byte* half) {
      std::memcpy(to + at + 2 * output, half, 2);
    };
    for (int64_t begin = 0; begin < k_; begin += info.block, src += info.block_bytes) {
      if (form.super) {
        put_half(0, src + (type_ == DType::kQ6_K ? 208 : 0));
        if (form.minima) put_half(32, src + 2);
        to += form.head_bytes();
      }
      for (int64_t part = 0; part < info.block / kColumns; ++part) {
        if (type_ == DType::kQ6_K) {
          for (int64_t half = 0; half < 2; ++half)
            to[16 * half + output] = static_cast<uint8_t>(src[192 + 2 * part + half]);
        } else if (form.super) {
          const SubBlockScale sub = SubBlockScaleOf(src + 4, static_cast<int>(part));
          to[output] = static_cast<uint8_t>(sub.scale);
          to[16 + output] = static_cast<uint8_t>(sub.min);
        } else {
          put_half(0, src);
          if (form.minima) put_half(32, src + 2);
        }
        uint8_t q[kColumns];
        BlockIntegers(type_, src, static_cast<int>(part), q);
        PackIntegers(q, form.bits, output, to + form.scale_bytes());
        to += form.block_bytes();
      }
    }
  }
}

}  // namespace longheads
