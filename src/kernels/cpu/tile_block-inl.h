// Blocks of AMX's tiles, 2 x 2 at most, whoever makes the tiles: the processor (amx_tiles-inl.h) or, in
// tests, an emulation (tests/support/emulated_tiles-inl.h).
//
//   sums[i][j] += left[i] * right[j]
//   sums [16, 16 of four bytes], left [16, 4 depth bytes], right [depth, 16 of four bytes]
//
// Four bytes of left and of right are two numbers of bfloat16 or four integers, multiplied one by one and
// added to one sum. So rows of left lie as rows of a matrix do, and right has two or four of its rows in one.
//
// Tiles has, with sizes in bytes and numbers of tiles as below:
//   Tiles(const TileShapes&), ~Tiles()   the thread's tiles are in use from one to the other
//   Clear<kTile>(), Load<kTile>(from, stride), Store<kTile>(to, stride)
//   AddBf16<kSum, kLeft, kRight>(), AddInt8<kSum, kLeft, kRight>()   integers with signs
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include <cstdint>

#include "hwy/highway.h"

namespace longheads::cpu {

// As LDTILECFG reads it.
struct TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;

// Tiles 2 i + j are sums[i][j], 4 + i left[i], 6 + j right[j].
constexpr int kSums = 0, kLeft = 4, kRight = 6;

constexpr TileShapes ShapesOfDepth(int depth) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    const bool left = tile == kLeft || tile == kLeft + 1;
    const bool right = tile >= kRight;
    shapes.row_bytes[tile] = static_cast<uint16_t>(left ? 4 * depth : kTileRowBytes);
    shapes.rows[tile] = static_cast<uint8_t>(right ? depth : kTileRows);
  }
  return shapes;
}

}  // namespace longheads::cpu

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

// A block is kI tiles high and kJ wide. In memory tile [i][j] begins 16 i rows and 64 j bytes behind the
// block.
inline const uint8_t* TileAt(const void* block, int64_t stride, int i, int j) {
  return static_cast<const uint8_t*>(block) + kTileRows * i * stride + kTileRowBytes * j;
}
inline uint8_t* TileAt(void* block, int64_t stride, int i, int j) {
  return static_cast<uint8_t*>(block) + kTileRows * i * stride + kTileRowBytes * j;
}

template <int kI, int kJ, typename Tiles>
HWY_INLINE void ClearSums(Tiles& tiles) {
  tiles.template Clear<kSums>();
  if constexpr (kJ == 2) tiles.template Clear<kSums + 1>();
  if constexpr (kI == 2) tiles.template Clear<kSums + 2>();
  if constexpr (kI == 2 && kJ == 2) tiles.template Clear<kSums + 3>();
}

template <int kI, int kJ, typename Tiles>
HWY_INLINE void LoadSums(Tiles& tiles, const void* from, int64_t stride) {
  tiles.template Load<kSums>(TileAt(from, stride, 0, 0), stride);
  if constexpr (kJ == 2) tiles.template Load<kSums + 1>(TileAt(from, stride, 0, 1), stride);
  if constexpr (kI == 2) tiles.template Load<kSums + 2>(TileAt(from, stride, 1, 0), stride);
  if constexpr (kI == 2 && kJ == 2) tiles.template Load<kSums + 3>(TileAt(from, stride, 1, 1), stride);
}

template <int kI, int kJ, typename Tiles>
HWY_INLINE void StoreSums(Tiles& tiles, void* to, int64_t stride) {
  tiles.template Store<kSums>(TileAt(to, stride, 0, 0), stride);
  if constexpr (kJ == 2) tiles.template Store<kSums + 1>(TileAt(to, stride, 0, 1), stride);
  if constexpr (kI == 2) tiles.template Store<kSums + 2>(TileAt(to, stride, 1, 0), stride);
  if constexpr (kI == 2 && kJ == 2) tiles.template Store<kSums + 3>(TileAt(to, stride, 1, 1), stride);
}

template <int kI, typename Tiles>
HWY_INLINE void LoadLeft(Tiles& tiles, const void* from, int64_t stride) {
  tiles.template Load<kLeft>(TileAt(from, stride, 0, 0), stride);
  if constexpr (kI == 2) tiles.template Load<kLeft + 1>(TileAt(from, stride, 1, 0), stride);
}

template <int kJ, typename Tiles>
HWY_INLINE void LoadRight(Tiles& tiles, const void* from, int64_t stride) {
  tiles.template Load<kRight>(TileAt(from, stride, 0, 0), stride);
  if constexpr (kJ == 2) tiles.template Load<kRight + 1>(TileAt(from, stride, 0, 1), stride);
}

template <int kI, int kJ, typename Tiles>
HWY_INLINE void AddBf16(Tiles& tiles) {
  tiles.template AddBf16<kSums, kLeft, kRight>();
  if constexpr (kJ == 2) tiles.template AddBf16<kSums + 1, kLeft, kRight + 1>();
  if constexpr (kI == 2) tiles.template AddBf16<kSums + 2, kLeft + 1, kRight>();
  if constexpr (kI == 2 && kJ == 2) tiles.template AddBf16<kSums + 3, kLeft + 1, kRight + 1>();
}

template <int kI, int kJ, typename Tiles>
HWY_INLINE void AddInt8(Tiles& tiles) {
  tiles.template AddInt8<kSums, kLeft, kRight>();
  if constexpr (kJ == 2) tiles.template AddInt8<kSums + 1, kLeft, kRight + 1>();
  if constexpr (kI == 2) tiles.template AddInt8<kSums + 2, kLeft + 1, kRight>();
  if constexpr (kI == 2 && kJ == 2) tiles.template AddInt8<kSums + 3, kLeft + 1, kRight + 1>();
}

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
