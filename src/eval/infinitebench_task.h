// `longheads eval infinitebench`: its options, and the official files that they name (infinitebench.h,
// benchmark_task.h).
#pragma once

#include "eval/task_registry.h"

namespace longheads {

TaskKind InfiniteBenchKind();

}  // namespace longheads
