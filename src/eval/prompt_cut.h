// Makes a benchmark's prompt fit a limit of tokens, by the rules of the published harnesses. All of them cut
// in tokens and read the text that the kept tokens stand for anew, so the prompt may come out a few tokens
// longer or shorter than the limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

enum class CutRule {
  kNone,
  // The first and the last limit / 2 tokens, rounded down; LongBench decodes the two apart. BOS counts among
  // the first and is put there anew.
  kMiddle,
  // The same decoded as one: InfiniteBench.
  kMiddleAsOne,
  // The first 128 tokens and the last (limit - max_new - 128), if there are more than limit - max_new:
  // InfLLM's, for methods that cannot read beyond their window.
  kSuffix,
};

std::optional<CutRule> FindCutRule(std::string_view name);  // "none", "middle", "middle-as-one", "suffix"

struct CutPrompt {
  std::string head;  // equal in all prompts whose first part (to `shared_bytes`) is equal
  std::string tail = {};
  int64_t n_tokens = 0;   // of the whole text, with BOS where the vocabulary asks for it
  int64_t n_dropped = 0;  // of these
};

// `shared_bytes`: how far the text is shared with other prompts; the head ends there where nothing is cut.
// `around` tokens beside the text's own (a chat template's) count against the limit.
Result<CutPrompt> CutToLimit(const Tokenizer& tokenizer, std::string_view text, std::size_t shared_bytes,
                             CutRule rule, int64_t limit, int64_t max_new, int64_t around,
                             const CancelToken* cancel);

}  // namespace longheads
