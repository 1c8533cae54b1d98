// How large the blocks are in which a text is read whose keys and values do not fit into memory.
#pragma once

#include <cstdint>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"

namespace longheads {

// Blocks of one part of `parts` of what is before them read, for each new token, the keys and values of
// `parts` tokens once more. The most parts, a power of two in the bounds of BlockFit, with which that takes
// the disk a fifth of the time at most. Speeds are bytes and tokens a second.
int64_t BlockParts(double disk_speed, double kv_bytes_per_token, double reading_speed);

// Refuses numbers of parts that --kv-blocks may not have.
Status CheckBlockParts(int64_t parts);

// Whether the blocks of a text of n tokens depend on it: a short one, or one for whose activations memory has
// little room, is read in the same blocks by any parts.
bool BlockPartsMatter(const Engine& engine, int64_t n_tokens);

struct MeasuredBlockParts {
  int64_t parts = BlockFit::kMostParts;
  double disk_speed = 0;     // bytes a second
  double reading_speed = 0;  // tokens a second, of the beginning of a text
};

// Measures the disk of the engine's folder, where 64 MiB lie for the moment, and how fast the engine reads: a
// second or so of a small model. kCancelled where it was interrupted.
Result<MeasuredBlockParts> MeasureBlockParts(Engine& engine, const CancelToken* cancel);

// Makes the engine read a text of n tokens in blocks of so many parts; in more, which it returns, where
// memory, or what the engine may take of it, has no room for so large ones.
int64_t FitBlocksToMemory(Engine& engine, int64_t n_tokens, int64_t parts);

// By what it measures. What it chose.
Result<MeasuredBlockParts> FitBlocksToDisk(Engine& engine, int64_t n_tokens, const CancelToken* cancel);

}  // namespace longheads
