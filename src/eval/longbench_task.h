// `longheads eval longbench`: its options, and the official files that they name (longbench.h,
// benchmark_task.h).
#pragma once

#include "eval/task_registry.h"

namespace longheads {

TaskKind LongBenchKind();

}  // namespace longheads
