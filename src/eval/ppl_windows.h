// Perplexity of documents as the papers measure it. Two ways, both with S = --stride:
//
// sliding: a window of T tokens goes over each document in steps of S. Every window is read anew, and its
// tokens that no window before it had are scored, each given what stands before it in the window: of the
// first window all, then S of each (yarn's perplexity.py, which LongHeads' Table 1 used; T tokens with BOS,
// where the vocabulary asks for one). There are two averages of the negative log-likelihoods, over tokens and
// over the windows' means; in the second, the published program's, the first window with its T tokens counts
// as much as one with S.
//
// stream: the first T tokens of each document are read once, S in a call, and all are scored, each given all
// before it, as far as the method lets it see (StreamingLLM's and LM-Infinite's way). There are no windows
// then, and one average: over tokens, as StreamingLLM has it. Calls are not what anything published is of.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/ppl_sample.h"
#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

struct PplWindowsOptions {
  std::vector<int64_t> lengths;  // T
  bool stream = false;
  int64_t stride = 256;   // S
  int64_t n_tokens = 0;   // that are taken of each document when sliding; 0: all
  int64_t n_samples = 1;  // pieces of the haystack, where there are no documents
};

struct TextDocument {
  std::string name;
  std::string text;
};

// One window: tokens [begin, end) of a document are read, of which [score, end) are scored. Where score ==
// begin and no BOS stands before it, the first token has nothing to be predicted from.
struct PplWindow {
  int64_t begin = 0, score = 0, end = 0;
  bool operator==(const PplWindow&) const = default;
};
// Those of a document of n_document tokens, `window` of them in each (without BOS).
std::vector<PplWindow> SlidingWindows(int64_t n_document, int64_t window, int64_t stride);

// Windows' scores, averaged in both ways.
class WindowAverages {
 public:
  void Add(const PplScore& window);
  const PplScore& tokens() const { return tokens_; }
  int64_t n_windows() const { return n_windows_; }
  double mean_of_windows() const { return sum_of_means_ / static_cast<double>(n_windows_); }

 private:
  PplScore tokens_;
  double sum_of_means_ = 0;
  int64_t n_windows_ = 0;
};

class PplWindowsTask : public Task {
 public:
  // Of `documents`, or where there are none of pieces of `text`.
  PplWindowsTask(Haystack text, std::vector<TextDocument> documents, PplWindowsOptions options);

  std::string name() const override { return "ppl-windows"; }
  MeasureName measure() const override { return {.name = "nll", .unit = "nats"}; }
  std::vector<std::string> shown() const override;
  Json Setup() const override;
  bool has_form() const override { return false; }
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;
  // DIR/ppl-windows-totals.csv: perplexities over all documents, by setup and length, of all records in DIR.
  // What is of windows is empty for a stream.
  Status Export(const std::string& directory, std::span<const TaskRecord> run) const override;

 private:
  // Without BOS; at most as many as are needed.
  Result<std::vector<TokenId>> Tokens(const Engine& engine, int64_t number, int64_t length,
                                      const CancelToken* cancel) const;
  Result<WindowAverages> Slide(const TaskContext& context, std::span<const TokenId> tokens,
                               int64_t window) const;
  Result<PplScore> Stream(const TaskContext& context, std::span<const TokenId> tokens) const;

  Haystack text_;
  std::vector<TextDocument> documents_;
  PplWindowsOptions options_;
  std::vector<Sample> samples_;
};

TaskKind PplWindowsKind();

}  // namespace longheads
