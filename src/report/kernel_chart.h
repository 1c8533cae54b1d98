// How near single kernels come to the machine's limits, as a drawing.
#pragma once

#include <string>
#include <vector>

#include "bench/kernels.h"

namespace longheads {

// SVG: a bar for each kernel that was timed, its share of the limit, with the spread of the repeats.
std::string KernelChart(const std::vector<KernelRow>& rows);

}  // namespace longheads
