// What the machine can do, and how near single kernels come to it, as drawings.
#pragma once

#include <string>
#include <vector>

#include "bench/kernels.h"
#include "bench/limits.h"

namespace longheads {

// SVG: a bar for each kernel that was timed, its share of the limit, with the spread of the repeats.
std::string KernelChart(const std::vector<KernelRow>& rows);

// SVG: a bar for each figure that was measured, with the spread of the repeats; bytes and operations have an
// axis each.
std::string LimitsChart(const MachineLimits& limits);

}  // namespace longheads
