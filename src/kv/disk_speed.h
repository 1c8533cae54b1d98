// How fast pages come from a folder's disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace longheads {

// Bytes a second of 64 KiB pieces, in no order, read from the disk of `folder`, past the system's cache where
// the file system allows that: of each repeat, which reads all of `bytes`. Needs so many there for the
// moment. kCancelled where it was interrupted.
Result<std::vector<double>> MeasureDiskSpeed(const std::string& folder, uint64_t bytes, int repeats,
                                             const CancelToken* cancel);

}  // namespace longheads
