#include "eval/prompt_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

namespace longheads {
namespace {

constexpr int64_t kSuffixHead = 128;

// How many tokens stay at both ends of n.
struct Kept {
  int64_t first;
  int64_t last;
};

Result<Kept> KeptOf(CutRule rule, int64_t n, int64_t limit, int64_t max_new, int64_t around) {
  const int64_t room = limit - around;
  switch (rule) {
    case CutRule::kNone:
      return Kept{n, 0};
    case CutRule::kMiddle:
    case CutRule::kMiddleAsOne:
      if (room < 2) break;
      return n <= room ? Kept{n, 0} : Kept{room / 2, room / 2};
    case CutRule::kSuffix:
      if (room - max_new <= kSuffixHead) break;
      return n <= room - max_new ? Kept{n, 0} : Kept{kSuffixHead, room - max_new - kSuffixHead};
  }
  return InvalidInput(
      fmt::format("a prompt of {} tokens cannot keep anything of its text: {} of them are not for it", limit,
                  rule == CutRule::kSuffix ? around + max_new + kSuffixHead : around));
}

}  // namespace

std::optional<CutRule> FindCutRule(std::string_view name) {
  if (name == "none") return CutRule::kNone;
  if (name == "middle") return CutRule::kMiddle;
  if (name == "middle-as-one") return CutRule::kMiddleAsOne;
  if (name == "suffix") return CutRule::kSuffix;
  return std::nullopt;
}

Result<CutPrompt> CutToLimit(const Tokenizer& tokenizer, std::string_view text, std::size_t shared_bytes,
                             CutRule rule, int64_t limit, int64_t max_new, int64_t around,
                             const CancelToken* cancel) {
  LH_ASSIGN(const std::vector<TokenId> tokens, tokenizer.Encode(text, {.add_bos = true, .cancel = cancel}));
  const auto n = static_cast<int64_t>(tokens.size());
  LH_ASSIGN(const Kept kept, KeptOf(rule, n, limit, max_new, around));
  if (kept.first >= n) {
    return CutPrompt{.head = std::string(text.substr(0, shared_bytes)),
                     .tail = std::string(text.substr(std::min(shared_bytes, text.size()))),
                     .n_tokens = n};
  }
  const std::span<const TokenId> all(tokens);
  const std::span<const TokenId> first = all.first(static_cast<std::size_t>(kept.first));
  const std::span<const TokenId> last = all.last(static_cast<std::size_t>(kept.last));
  CutPrompt cut{.head = tokenizer.Decode(first, /*special=*/false),
                .n_tokens = n,
                .n_dropped = n - kept.first - kept.last};
  if (rule == CutRule::kMiddle) {
    cut.tail = tokenizer.Decode(last, /*special=*/false);
    return cut;
  }
  std::vector<TokenId> both(first.begin(), first.end());
  both.insert(both.end(), last.begin(), last.end());
  const std::string text_of_both = tokenizer.Decode(both, /*special=*/false);
  // Where a character was cut in two its half is another text alone than before the rest.
  const auto [in_head, in_both] = std::ranges::mismatch(cut.head, text_of_both);
  cut.head.erase(in_head, cut.head.end());
  cut.tail.assign(in_both, text_of_both.end());
  return cut;
}

}  // namespace longheads
