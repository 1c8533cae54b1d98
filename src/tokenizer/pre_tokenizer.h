// Cuts a text into the words inside which byte-level BPE merges, as the pre-tokenizer that a GGUF file names
// does: one or several regular expressions in turn, each keeping both what it matches and what lies between.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

  // Appends the words of `text`, which must be well-formed UTF-8; together they are the text. Safe to call
  // from several threads.
  Status Split(std::string_view text, std::vector<std::string_view>& words) const;

  // Whether a word that is a token as a whole is taken without looking at the merges (Llama 3).
  bool ignores_merges() const { return ignores_merges_; }

 private:
  class Pattern;
  PreTokenizer(std::vector<Pattern> patterns, bool ignores_merges);
  std::vector<Pattern> patterns_;
  bool ignores_merges_;
};

}  // namespace longheads
