// Pass keys in the forms of the published programs, which differ in the key, in how the filler is joined, in
// where the key stands and in what is right. `eval passkey` (passkey.h) is ours: one form, and the digits of
// a forced answer beside the free one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

enum class PasskeyPaper {
  kLongHeads,      // 1 .. 49999; characters of filler, cut anywhere; right when every token is the key's
  kLandmark,       // 1 .. 50000; the same filler; the first integer of ten tokens
  kYarn,           // as kLandmark, its filler grown by 128 characters to a length in tokens (also Quest)
  kLmInfinite,     // 1 .. 9999999; whole units with spaces between; first integer
  kSelfExtend,     // five or ten digits; a unit a line
  kInfiniteBench,  // five digits, 0 among them; a unit a line; behind 0, 90 .. 5220 of 5220 units, as a share
};
std::optional<PasskeyPaper> FindPasskeyPaper(std::string_view name);

struct PasskeyPaperOptions {
  PasskeyPaper paper = PasskeyPaper::kLongHeads;
  std::vector<int64_t> lengths;
  bool by_characters = false;  // lengths are characters of filler, not tokens: kLongHeads, kLandmark
  int64_t n_depths = 0;        // 0: the program's own places; else evenly from 0 to 100 percent
  int64_t n_repeats = 10;
  int64_t digits = 5;   // of kSelfExtend's keys
  int64_t chunk = 256;  // which boundaries count as a split
  uint64_t seed = 0;
};

// The filler's characters for a length: floor(3.75 k) * 1024 for k * 1024 tokens.
int64_t PasskeyFillerCharacters(int64_t length);

class PasskeyPaperTask : public Task {
 public:
  explicit PasskeyPaperTask(PasskeyPaperOptions options);

  std::string name() const override { return "passkey-papers"; }
  MeasureName measure() const override { return {.name = "accuracy"}; }
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;

  struct Case {
    int64_t length = 0;       // as the options count it
    int64_t depth_index = 0;  // 0 where places are the program's own
    int64_t repeat = 0;
  };
  // The key's digits, and the share of the filler before it.
  std::string KeyOf(const Case& c) const;
  double DepthOf(const Case& c) const;
  // The text up to the question, so many filler units long; characters of filler where the program counts
  // those.
  std::string Text(const Case& c, int64_t filler) const;
  // How much filler the case's prompt has.
  Result<int64_t> FillerOf(const Engine& engine, PromptForm form, const Case& c,
                           const CancelToken* cancel = nullptr) const;

 private:
  struct Asked {
    PromptText text;
    Prompt prompt;
  };
  const Case& CaseOf(const Sample& sample) const { return cases_[static_cast<std::size_t>(sample.number)]; }
  // Papers whose lengths are characters of filler, and those whose filler is cut anywhere.
  bool has_fixed_filler() const {
    return options_.paper == PasskeyPaper::kLongHeads || options_.paper == PasskeyPaper::kLandmark;
  }
  bool has_characters() const { return has_fixed_filler() || options_.paper == PasskeyPaper::kYarn; }
  Result<Asked> Ask(const Engine& engine, PromptForm form, const Case& c, int64_t filler,
                    const CancelToken* cancel) const;

  PasskeyPaperOptions options_;
  std::vector<Case> cases_;
  std::vector<Sample> samples_;
};

// Whether a text that stands in a prompt crosses a multiple of `chunk` tokens at any of its places.
bool IsSplit(const Tokenizer& tokenizer, std::span<const TokenId> tokens, const std::string& text,
             int64_t chunk);

TaskKind PasskeyPaperKind();

}  // namespace longheads
