// A needle in a haystack (Kamradt 2023, LLMTest_NeedleInAHaystack): one sentence at a depth of a text of a
// length, asked for at its end. Lengths, depths and the result files follow the published program; the score
// does not need a judge: an answer is right when it has the needle's key phrases.
#pragma once

#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/task.h"
#include "eval/task_record.h"
#include "eval/task_registry.h"

namespace longheads {

struct NeedleOptions {
  std::vector<int64_t> lengths;
  std::vector<double> depths;  // percent of the text before the needle
  int64_t n_repeats = 1;       // other pieces of the haystack
  std::string needle, question;
  std::vector<std::string> expected;  // all must occur in an answer, whatever their case
  int64_t max_new = 50;
};

class NeedleTask : public QuestionTask {
 public:
  NeedleTask(Haystack haystack, NeedleOptions options);

  std::string name() const override { return "needle"; }
  MeasureName measure() const override { return {.name = "accuracy"}; }
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Result<Question> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                       const CancelToken* cancel) const override;
  Score Judge(const Question& question, const std::string& answer) const override;
  // DIR/needle-results/MODEL-FINGERPRINT/MODEL_len_N_depth_P_results.json for each cell of all records in
  // DIR, a folder for each setup, the files as the published program writes them. MODEL is the model's and
  // the method's name, P the hundredths of a percent, cut off. Of more than 775 sigmoid depths some share a
  // file, as there.
  Status Export(const std::string& directory, std::span<const TaskRecord> run) const override;

 private:
  Haystack haystack_;
  NeedleOptions options_;
  std::vector<Sample> samples_;
};

// n depths from 0 to 100 percent as the published program spreads them: evenly and rounded to whole percents,
// or along a logistic curve and rounded to thousandths of one. Rising, each once. One depth is the middle.
std::vector<double> NeedleDepths(int64_t n, bool sigmoid);

// Where in `tokens` the needle goes: behind the last token with a full stop among the first depth percent of
// them; behind all for 100.
std::size_t NeedlePlace(const Tokenizer& tokenizer, std::span<const TokenId> tokens, double depth_percent);

TaskKind NeedleKind();

}  // namespace longheads
