// Single kernels against what this machine can do: each gives what the reference gives first, and is timed
// then. Google Benchmark repeats them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/measured.h"

namespace longheads {

struct KernelOptions {
  std::string filter = ".*";  // a regular expression: those whose name it is found in
  int repeats = 25;
  int threads = 1;  // of the kernels that all threads run together
};

struct KernelRow {
  // Operation, implementation, for some the type of weights, and sizes: "int8-token/avx2/Q8_0/threads:2".
  std::string name;
  std::string unit;  // of rate: "B/s" of weights that are read, or "OP/s": two for a multiply-add
  Measured rate = {};
  double limit = 0;    // of this machine, in the same unit
  std::string failed;  // why there is no rate: what it gave where the reference gives something else

  double share() const { return limit > 0 ? rate.median / limit : 0; }
};

// Refuses a filter that is no regular expression, or that no kernel's name has.
Status CheckKernels(const KernelOptions& options);

// Every kernel that runs on this processor, one after the other; `on_row` hears of the share that is done.
// kCancelled where it was interrupted; refuses what CheckKernels does. One call at a time: Google Benchmark's
// list of benchmarks is the process's.
Result<std::vector<KernelRow>> RunKernels(const KernelOptions& options, const CancelToken* cancel,
                                          const std::function<void(double share)>& on_row = nullptr);

std::string KernelTable(const std::vector<KernelRow>& rows);
std::string KernelCsv(const std::vector<KernelRow>& rows);
std::string KernelJson(const std::vector<KernelRow>& rows);

}  // namespace longheads
