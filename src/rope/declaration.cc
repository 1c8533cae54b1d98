#include "rope/declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "rope/schedules.h"

namespace longheads {
namespace {

constexpr std::pair<RopeScaling, std::string_view> kScalings[] = {{RopeScaling::kNone, "none"},
                                                                  {RopeScaling::kLinear, "linear"},
                                                                  {RopeScaling::kYarn, "yarn"},
                                                                  {RopeScaling::kLongrope, "longrope"}};

// The window from which scaling starts.
int64_t OriginalContext(const RopeDeclaration& rope) {
  return rope.original_context > 0 ? rope.original_context : rope.context_length;
}

Result<Frequencies> DeclaredYarn(const RopeDeclaration& rope, const Frequencies& plain) {
  YarnOptions options{.factor = rope.factor,
                      .original_context = OriginalContext(rope),
                      .beta_fast = rope.beta_fast,
                      .beta_slow = rope.beta_slow,
                      .ext_factor = rope.ext_factor,
                      .attention_factor = rope.magnitude};
  if (rope.log_multiplier != 0) {
    options.mscale = 1;
    options.mscale_all_dim = rope.log_multiplier;
  }
  return Yarn(plain, rope.base, options);
}

Result<Frequencies> DeclaredLongrope(const RopeDeclaration& rope, const Frequencies& plain,
                                     int64_t n_tokens) {
  const int64_t original = OriginalContext(rope);
  const double factor = rope.factor > 1 ? rope.factor
                                        : static_cast<double>(rope.context_length) /
                                              static_cast<double>(std::max<int64_t>(original, 1));
  return Longrope(plain,
                  {.short_factors = rope.short_factors,
                   .long_factors = rope.long_factors,
                   .original_context = original,
                   .factor = factor,
                   .attention_factor = rope.attn_factor},
                  n_tokens);
}

}  // namespace

std::string_view RopeScalingName(RopeScaling scaling) {
  return std::find_if(std::begin(kScalings), std::end(kScalings),
                      [scaling](const auto& entry) { return entry.first == scaling; })
      ->second;
}

std::optional<RopeScaling> RopeScalingOf(std::string_view name) {
  for (const auto& [scaling, its_name] : kScalings) {
    if (its_name == name) return scaling;
  }
  return std::nullopt;
}

int64_t DeclaredWindow(const RopeDeclaration& rope) {
  if (rope.scaling == RopeScaling::kNone || rope.original_context == 0) return rope.context_length;
  constexpr double kMost = int64_t{1} << 40;
  const double extended = std::min(static_cast<double>(rope.original_context) * rope.factor, kMost);
  return std::max(rope.context_length, static_cast<int64_t>(extended));
}

Result<Frequencies> DeclaredFrequencies(const RopeDeclaration& rope, int64_t n_tokens) {
  Frequencies plain;
  LH_ASSIGN(plain, TrainedFrequencies(rope.base, rope.rotary_dim, rope.divisors));
  if (rope.attn_factor && (!(*rope.attn_factor > 0) || !std::isfinite(*rope.attn_factor))) {
    return InvalidInput(
        fmt::format("the RoPE amplitude is {}, but must be a positive number", *rope.attn_factor));
  }
  if (rope.scaling == RopeScaling::kLongrope) return DeclaredLongrope(rope, plain, n_tokens);
  plain.amplitude = rope.attn_factor.value_or(1);
  if (rope.scaling == RopeScaling::kLinear) return PositionInterpolation(plain, rope.factor);
  if (rope.scaling == RopeScaling::kYarn) return DeclaredYarn(rope, plain);
  return plain;
}

std::string DescribeRope(const RopeDeclaration& rope) {
  std::string text = fmt::format("base {}", rope.base);
  if (!rope.divisors.empty()) text += ", frequencies divided as rope_freqs says (llama3 scaling)";
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      text += fmt::format(", positions / {}", rope.factor);
      break;
    case RopeScaling::kYarn:
      text += fmt::format(", YaRN with factor {} from {} tokens", rope.factor, OriginalContext(rope));
      break;
    case RopeScaling::kLongrope:
      text += fmt::format(", LongRoPE with one table of factors up to {} tokens and one beyond",
                          OriginalContext(rope));
      break;
  }
  if (rope.attn_factor && *rope.attn_factor != 1)
    text += fmt::format(", amplitude {} {}", rope.scaling == RopeScaling::kLongrope ? "=" : "x",
                        *rope.attn_factor);
  return text;
}

}  // namespace longheads
