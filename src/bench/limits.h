// What this machine can do at most: bytes read from memory and operations of large matrix products, on all
// threads together. Speeds of the engine are told as shares of these.
#pragma once

#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "bench/measured.h"
#include "kernels/gemm.h"

namespace longheads {

struct MachineLimits {
  int threads = 0;
  Measured read = {};  // bytes a second, from memory
  Measured f32 = {};   // operations a second of large products (PeakGemm): two for a multiply-add
  Measured bf16 = {};  // not measured where the processor has no instructions for it
  Measured int8 = {};  // of unsigned with signed bytes
  Measured disk = {};  // bytes a second, read from a folder's disk; measured where one is named

  const Measured& products(ComputeType type) const;
};

// Bytes a second that the pool's threads read from memory. kCancelled where it was interrupted.
Result<Measured> MeasureRead(ThreadPool& pool, int repeats, const CancelToken* cancel);

// Bytes a second of 64 KiB pieces, in no order, read from the disk of `folder`, past the system's cache where
// the file system allows that. Needs 256 MiB there for the moment. kCancelled where it was interrupted.
Result<Measured> MeasureDisk(const std::string& folder, int repeats, const CancelToken* cancel);

// Takes a second or so for each figure and five repeats. kCancelled where it was interrupted.
Result<MachineLimits> MeasureLimits(ThreadPool& pool, int repeats, const CancelToken* cancel);

std::string LimitsTable(const MachineLimits& limits);
// A line for each figure that was measured.
std::string LimitsCsv(const MachineLimits& limits);
std::string LimitsJson(const MachineLimits& limits);

}  // namespace longheads
