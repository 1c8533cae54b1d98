// A sweep's speeds and memory against length, as drawings.
#pragma once

#include <string>
#include <vector>

#include "bench/sweep.h"

namespace longheads {

struct SweepChart {
  std::string name;     // of a file: "sweep-prefill.svg"
  std::string drawing;  // SVG
};

// Prefill, decode and memory, a line for each method; nothing of what was not measured.
std::vector<SweepChart> SweepCharts(const std::vector<SweepRow>& rows, const SweepSetup& setup);

}  // namespace longheads
