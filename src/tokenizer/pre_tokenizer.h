// Cuts a text into the words inside which byte-level BPE merges, as the pre-tokenizer that a GGUF file names
// does: one or several regular expressions in turn, each keeping both what it matches and what lies between.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace longheads {

class PreTokenizer {
 public:
  // "smollm", "llama-bpe", "qwen2", "gpt-2" or "default" (also for an empty name); an unknown name is
  // refused.
  static Result<PreTokenizer> Create(std::string_view name);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Hands over the words of `text`, which must be well-formed UTF-8, one by one: together they are the text.
  // What `take` returns as an error ends it, and so does `cancel` (kCancelled). Safe to call from several
  // threads.
  using Take = std::function<Status(std::string_view word)>;
  Status Split(std::string_view text, const CancelToken* cancel, const Take& take) const;

  // Whether a word that is a token as a whole is taken without looking at the merges (Llama 3).
  bool ignores_merges() const { return ignores_merges_; }

 private:
  class Pattern;
  struct Scratch;
  PreTokenizer(std::vector<Pattern> patterns, bool ignores_merges);
  Status SplitFrom(size_t pattern, std::string_view text, const CancelToken* cancel, Scratch& scratch,
                   const Take& take) const;

  std::vector<Pattern> patterns_;
  bool ignores_merges_;
};

}  // namespace longheads
