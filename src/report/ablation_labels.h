// LongHeads' variants (`longheads eval ablation`) among the methods of an experiment: their results are kept
// as the task's that was run on them, and only their specs say that they belong together.
#pragma once

#include <map>
#include <span>
#include <string>

namespace longheads {

// The paper's labels by method: of the base of which the most variants are there, and of these. Nothing where
// there are fewer than three.
std::map<std::string, std::string> AblationLabels(std::span<const std::string> methods);

}  // namespace longheads
