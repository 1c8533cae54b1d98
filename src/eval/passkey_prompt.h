// The prompts of passkey retrieval: a five-digit key said twice, somewhere in a filler text, and the question
// after it (LongHeads, Table 6; Mohtashami & Jaggi 2023). Builds them to a length in tokens; running a model
// on them is passkey.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "eval/prompt.h"

namespace longheads {

// The first line of every pass key's prompt, and the filler's five sentences as one unit of 89 characters.
inline constexpr std::string_view kPasskeyTask =
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will "
    "quiz you about the important information there.";
inline constexpr std::string_view kPasskeyUnit =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

// How the filler's five sentences stand. The paper's Table 6 leaves it open.
enum class PasskeyFiller {
  kLines,  // in a line of their own, each time: the prompts of Self-Extend and InfiniteBench
  kLine,   // all filler before the key in one line, and so after it: LongHeads' and Landmark's scripts
};

// All that decides on the words of a prompt, beside its case.
struct PasskeyStyle {
  PromptForm form = PromptForm::kPlain;
  PasskeyFiller filler = PasskeyFiller::kLines;

  bool operator==(const PasskeyStyle&) const = default;
};

// "lines", "line".
std::string_view PasskeyFillerName(PasskeyFiller filler);
std::optional<PasskeyFiller> FindPasskeyFiller(std::string_view name);

// One cell's one repeat. The same case has the same prompt whichever others run beside it.
struct PasskeyCase {
  int64_t length = 0;     // wanted tokens, the template's included
  int64_t depth_ppm = 0;  // share of the filler that stands before the key, in millionths
  int64_t repeat = 0;

  double depth() const { return static_cast<double>(depth_ppm) / 1e6; }
  bool operator==(const PasskeyCase&) const = default;
};

// Depth d of n lies in the middle of its share: (d + 1/2) / n, so that one depth alone is the middle.
int64_t PasskeyDepthPpm(int64_t d, int64_t n);

// The case's key, 10000 .. 99999: 10000 + h mod 90000, where h = seed and then, for length, depth_ppm and
// repeat in turn, h = SplitMix64's output from the state h xor the number.
int64_t PasskeyKey(uint64_t seed, const PasskeyCase& c);

// The prompt whose token count is nearest to the case's length, the filler cut at sentences. Refused where
// that is more than 1% off, or no room is left for filler: the message says what the model's tokenizer needs.
// kCancelled once `cancel` is raised.
Result<Prompt> BuildPasskeyPrompt(const Engine& engine, const PasskeyStyle& style, const PasskeyCase& c,
                                  int64_t key, const CancelToken* cancel = nullptr);

// What follows the prompt where the answer is forced, as tokens that continue `prompt`: " KEY" in the plain
// form, "The pass key is KEY." in the chat form.
Result<std::vector<TokenId>> ForcedPasskeyAnswer(const Engine& engine, PromptForm form, const Prompt& prompt,
                                                 int64_t key);

// The sentence that says the key in the prompt.
std::string PasskeySentence(int64_t key);

// Whether the first integer of an answer, its first run of digits, is the key.
bool AnswersPasskey(std::string_view answer, int64_t key);

}  // namespace longheads
