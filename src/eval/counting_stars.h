// Counting-Stars (Song et al. 2024), English, acquisition: m sentences "... counted x stars" at equal
// distances in a text, and the list of all x asked for at its end. n samples have texts of 1/n, 2/n ... of
// the context. The score is the recall of the m numbers. Samples are made from a haystack, or read from the
// official files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/task.h"
#include "eval/task_registry.h"
#include "formats/line_file.h"

namespace longheads {

struct CountingStarsOptions {
  int64_t context = 8192;  // tokens of the longest text
  int64_t n_stars = 32;    // m
  int64_t n_samples = 32;  // n
  // So many of the text's words stand for a token: the official 0.8 of English.
  double words_per_token = 0.8;
  uint64_t seed = 0;
  int64_t max_new = 0;  // 0: by the number of stars
};

class CountingStarsTask : public QuestionTask {
 public:
  CountingStarsTask(Haystack haystack, CountingStarsOptions options);
  // The official file's lines are the samples; a damaged one is a sample that fails when it is asked.
  static Result<std::unique_ptr<Task>> FromFile(const std::string& path, CountingStarsOptions options);

  std::string name() const override { return "counting-stars"; }
  MeasureName measure() const override { return {.name = "recall"}; }
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Result<Question> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                       const CancelToken* cancel) const override;
  Score Judge(const Question& question, const std::string& answer) const override;

  // The numbers of a sample that is made here: m of 1 .. 100, each once.
  std::vector<int64_t> Stars(const Sample& sample) const;

 private:
  CountingStarsTask() = default;
  Result<Question> Read(const Sample& sample) const;

  CountingStarsOptions options_;
  std::optional<Haystack> haystack_;
  std::optional<LineFile> file_;
  std::string file_hash_;
  std::vector<Sample> samples_;
};

TaskKind CountingStarsKind();

}  // namespace longheads
