#include "eval/task_registry.h"

#include <algorithm>

#include "eval/counting_stars.h"
#include "eval/efficiency.h"
#include "eval/esa_recall_task.h"
#include "eval/infinitebench_task.h"
#include "eval/kld.h"
#include "eval/longbench_task.h"
#include "eval/needle.h"
#include "eval/needlebench.h"
#include "eval/passkey_papers.h"
#include "eval/ppl_windows.h"
#include "eval/ruler.h"
#include "eval/selection_stats.h"

namespace longheads {

std::span<const TaskKind> TaskKinds() {
  static const std::vector<TaskKind> kinds = {NeedleKind(),    PasskeyPaperKind(), PplWindowsKind(),
                                              KldKind(),       SelectionKind(),    EfficiencyKind(),
                                              EsaRecallKind(), NeedleBenchKind(),  CountingStarsKind(),
                                              RulerKind(),     LongBenchKind(),    InfiniteBenchKind()};
  return kinds;
}

const TaskKind* FindTaskKind(std::string_view name) {
  const auto kind = std::ranges::find(TaskKinds(), name, &TaskKind::name);
  return kind == TaskKinds().end() ? nullptr : &*kind;
}

Result<std::unique_ptr<Task>> MakeTask(const TaskKind& kind, TaskOptions::Values given) {
  TaskOptions options(kind.options, std::move(given));
  Result<std::unique_ptr<Task>> task = kind.make(options);
  // What is wrong with an option explains better than what came of it.
  LH_TRY(options.status());
  return task;
}

}  // namespace longheads
