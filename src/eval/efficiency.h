// What a length costs (LongHeads, Table 5): seconds for a decoded token, seconds for the prompt, the most
// memory that the process had, and beside them whether the pass key that the prompt hides was found: a speed
// counts only with the accuracy of the same options at the same length.
#pragma once

#include <string>
#include <vector>

#include "eval/passkey_prompt.h"
#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

struct EfficiencyOptions {
  std::vector<int64_t> lengths;
  int64_t n_repeats = 3;   // with the key at other depths
  int64_t n_decode = 100;  // tokens that are timed
  uint64_t seed = 0;
};

class EfficiencyTask : public Task {
 public:
  explicit EfficiencyTask(EfficiencyOptions options);

  std::string name() const override { return "efficiency"; }
  MeasureName measure() const override { return {.name = "seconds a token", .unit = "s"}; }
  bool measures_cost() const override { return true; }
  std::vector<std::string> shown() const override { return {"prefill_seconds", "peak_gib", "accuracy"}; }
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;

 private:
  PasskeyCase CaseOf(const Sample& sample) const;

  EfficiencyOptions options_;
  std::vector<Sample> samples_;
};

TaskKind EfficiencyKind();

}  // namespace longheads
