// How far a method's predictions are from dense attention's where dense attention is at home, inside the
// trained window: the mean Kullback-Leibler divergence of the next token's distribution, KL(dense || method),
// over the last tokens of a piece of text. Both read the same prompt and are then fed the same tokens one by
// one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

struct KldOptions {
  std::vector<int64_t> lengths;
  int64_t n_samples = 2;  // pieces of the text
  int64_t n_score = 128;  // last tokens of each length whose prediction is compared
  std::string against = "full";
};

class KldTask : public Task {
 public:
  KldTask(Haystack text, KldOptions options);

  std::string name() const override { return "kld"; }
  MeasureName measure() const override { return {.name = "kl", .unit = "nats"}; }
  Json Setup() const override;
  bool has_form() const override { return false; }
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;

 private:
  Haystack text_;
  KldOptions options_;
  std::vector<Sample> samples_;
  std::unique_ptr<Engine> dense_;  // once it is needed
};

// In float64, of softmax(p) and softmax(q) over the same tokens; not below 0. Not finite where a logit is
// not.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

TaskKind KldKind();

}  // namespace longheads
