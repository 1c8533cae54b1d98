// Quantised weights laid out for integer products: tiles of 16 outputs, in which one vector holds four
// columns of all
// 16. As many bytes as in the file, but for 3% more in Q4_K and Q5_K, whose 6-bit scales take a byte each.
//
// A tile is a run of blocks of 32 columns, after a head for each 8 of them where the type has blocks of 256:
//
//   head   float16[16] scales, float16[16] minima' scales (Q4_K, Q5_K); float16[16] scales (Q6_K)
//   block  scales: float16[16] (Q4_0, Q5_0, Q8_0); these and float16[16] minima (Q4_1, Q5_1);
//                  uint8[16] scales, uint8[16] minima (Q4_K, Q5_K); int8[16] for each half of the columns
//                  (Q6_K)
//          integers: groups of four columns, 64 bytes each, byte 4 o + c that of output o and column c. Group
//          g of 8
//                  has its low four bits in nibble g % 2 of unit g / 2 of 64 bytes; then, where there are
//                  more: a fifth bit in bit g of one unit; a fifth and sixth in bits 2 (g % 4) of unit g / 4
//                  of two; or it is eight bits in a unit of its own (Q8_0)
//
// The last tile's missing outputs have zeros everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace longheads {

// What a weight type is to an integer product.
struct Int8Form {
  int bits;     // of an integer: 4, 5, 6 (unsigned) or 8 (signed)
  bool minima;  // w = scale * q + min, min stored
  int bias;     // else w = scale * (q - bias)
  bool super;   // blocks of 256, with heads
  int halves;   // scales for a block of 32 columns: 1, or 2 for 16 each

  constexpr int64_t head_bytes() const { return super ? (minima ? 64 : 32) : 0; }
  constexpr int64_t scale_bytes() const { return super || !minima ? 32 : 64; }
  constexpr int64_t block_bytes() const { return scale_bytes() + 64 * bits; }
  constexpr int64_t tile_bytes(int64_t k) const {
    return (k + 255) / 256 * head_bytes() + k / 32 * block_bytes();
  }
};

constexpr Int8Form FormOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {.bits = 4, .minima = false, .bias = 8, .super = false, .halves = 1};
    case DType::kQ4_1:
      return {.bits = 4, .minima = true, .bias = 0, .super = false, .halves = 1};
    case DType::kQ5_0:
      return {.bits = 5, .minima = false, .bias = 16, .super = false, .halves = 1};
    case DType::kQ5_1:
      return {.bits = 5, .minima = true, .bias = 0, .super = false, .halves = 1};
    case DType::kQ8_0:
      return {.bits = 8, .minima = false, .bias = 0, .super = false, .halves = 1};
    case DType::kQ4_K:
      return {.bits = 4, .minima = true, .bias = 0, .super = true, .halves = 1};
    case DType::kQ5_K:
      return {.bits = 5, .minima = true, .bias = 0, .super = true, .halves = 1};
    case DType::kQ6_K:
      return {.bits = 6, .minima = false, .bias = 32, .super = true, .halves = 2};
    default:
      return {};
  }
}

constexpr bool HasIntegers(DType type) { return FormOf(type).bits != 0; }

class Int8Weights {
 public:
  static constexpr int64_t kTile = 16;  // outputs

  // For the weights [n, k] of `type`, which has integers; empty until Pack has been called for every tile. At
  // `room`, BytesFor of it and aligned to a cache line, or in memory of its own.
  Int8Weights(DType type, int64_t n, int64_t k, std::shared_ptr<uint8_t> room);
  Int8Weights(DType type, int64_t n, int64_t k) : Int8Weights(type, n, k, Room(BytesFor(type, n, k))) {}

  // Memory for several side by side, which are read one after the other for every token.
  static std::shared_ptr<uint8_t> Room(int64_t bytes);

  // Lays out tile `tile` of the weights at `rows`, row-contiguous as in the file. Tiles are independent.
  void Pack(const std::byte* rows, int64_t tile);

  DType type() const { return type_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t n_tiles() const { return (n_ + kTile - 1) / kTile; }
  int64_t tile_bytes() const { return FormOf(type_).tile_bytes(k_); }
  const uint8_t* tile(int64_t tile) const { return packed_.get() + tile * tile_bytes(); }
  std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(packed_.get(), static_cast<std::size_t>(n_tiles() * tile_bytes())));
  }

  // In whole cache lines.
  static int64_t BytesFor(DType type, int64_t n, int64_t k) {
    constexpr int64_t kLine = static_cast<int64_t>(kAlignment);
    return ((n + kTile - 1) / kTile * FormOf(type).tile_bytes(k) + kLine - 1) / kLine * kLine;
  }

 private:
  DType type_;
  int64_t n_, k_;
  std::shared_ptr<uint8_t> packed_;
};

}  // namespace longheads
