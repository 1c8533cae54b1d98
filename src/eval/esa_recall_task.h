// How much of what ESA's exact scores choose its compressed ones choose too, layer by layer (ESA, Figure 2):
// k tokens each, for queries in a stretch of a text. The measuring is attention/esa_recall.h's; the
// compression is what `longheads fit-esa` fitted to the model.
#pragma once

#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

struct EsaRecallTaskOptions {
  int64_t from = 6000;  // queries at positions [from, to)
  int64_t to = 8000;
  int64_t k = 0;          // 0: the default of --attn esa
  int64_t n_samples = 1;  // pieces of the text
};

class EsaRecallTask : public Task {
 public:
  EsaRecallTask(Haystack text, EsaRecallTaskOptions options);

  std::string name() const override { return "esa-recall"; }
  MeasureName measure() const override { return {.name = "recall"}; }
  std::vector<std::string> methods() const override { return {"esa"}; }
  Json Setup() const override;
  bool has_form() const override { return false; }
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine&, PromptForm, const CancelToken*) const override { return {}; }
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;

 private:
  Haystack text_;
  EsaRecallTaskOptions options_;
  std::vector<Sample> samples_;
};

TaskKind EsaRecallKind();

}  // namespace longheads
