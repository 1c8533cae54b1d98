#include "rope/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace longheads {
namespace {

Result<double> Base(double given) {
  if (given > 1 && std::isfinite(given)) return given;
  return InvalidInput(fmt::format("--rope-freq-base is {}, but must be a number above 1", given));
}

Result<std::optional<double>> Factor(const RopeOverrides& overrides) {
  if (overrides.scale && overrides.freq_scale) {
    return InvalidInput(
        "--rope-scale N and --rope-freq-scale 1/N say the same thing, so only one of them can be given");
  }
  if (overrides.scale && (!(*overrides.scale >= 1) || !std::isfinite(*overrides.scale))) {
    return InvalidInput(
        fmt::format("--rope-scale is {}, but must be a number of at least 1", *overrides.scale));
  }
  if (!overrides.freq_scale) return overrides.scale;
  if (!(*overrides.freq_scale > 0) || !(*overrides.freq_scale <= 1)) {
    return InvalidInput(
        fmt::format("--rope-freq-scale is {}, but must be above 0 and at most 1", *overrides.freq_scale));
  }
  return 1 / *overrides.freq_scale;
}

// The window the model would have without its scaling.
int64_t UnscaledWindow(const RopeDeclaration& rope) {
  if (rope.scaling == RopeScaling::kNone) return rope.context_length;
  if (rope.original_context > 0) return rope.original_context;
  return static_cast<int64_t>(static_cast<double>(rope.context_length) / std::max(rope.factor, 1.0));
}

// What the user asks for, or what the file declares; a factor alone is linear scaling.
Result<RopeScaling> ScalingOf(const RopeDeclaration& rope, const RopeOverrides& overrides, bool has_factor) {
  RopeScaling scaling = rope.scaling;
  if (overrides.scaling) {
    const std::optional<RopeScaling> asked = RopeScalingOf(*overrides.scaling);
    if (!asked || *asked == RopeScaling::kLongrope) {
      return InvalidInput(
          fmt::format("--rope-scaling is '{}', but must be none, linear or yarn", *overrides.scaling));
    }
    scaling = *asked;
    if (scaling == RopeScaling::kNone && has_factor) {
      return InvalidInput("--rope-scaling none leaves every scaling out, so no factor can stand beside it");
    }
  } else if (has_factor && scaling == RopeScaling::kNone) {
    scaling = RopeScaling::kLinear;
  } else if (has_factor && scaling == RopeScaling::kLongrope) {
    return InvalidInput(
        "the model's LongRoPE has factors of its own: a scale needs --rope-scaling linear or yarn beside it");
  }
  return scaling;
}

Status PutScaling(RopeDeclaration& rope, RopeScaling scaling, std::optional<double> factor) {
  if (scaling == rope.scaling && !factor) return {};
  const int64_t unscaled = UnscaledWindow(rope);
  if (scaling != rope.scaling && rope.scaling != RopeScaling::kNone) {  // these were said of another scaling
    rope.attn_factor.reset();
    rope.magnitude.reset();
    rope.log_multiplier = 0;
  }
  rope.scaling = scaling;
  rope.context_length = unscaled;
  if (scaling == RopeScaling::kNone) {
    rope.original_context = 0;
    rope.factor = 1;
    return {};
  }
  if (!factor && rope.factor <= 1) {
    return InvalidInput(
        fmt::format("--rope-scaling {} needs its factor, as --rope-scale 4: the model file "
                    "names none",
                    RopeScalingName(scaling)));
  }
  rope.original_context = unscaled;
  rope.factor = factor.value_or(rope.factor);
  return {};
}

Status PutYarn(RopeDeclaration& rope, const RopeOverrides& overrides) {
  const std::pair<std::string_view, bool> flags[] = {
      {"--yarn-orig-ctx", overrides.orig_ctx.has_value()},
      {"--yarn-ext-factor", overrides.ext_factor.has_value()},
      {"--yarn-attn-factor", overrides.attn_factor.has_value()},
      {"--yarn-beta-slow", overrides.beta_slow.has_value()},
      {"--yarn-beta-fast", overrides.beta_fast.has_value()},
  };
  for (const auto& [flag, given] : flags) {
    if (!given || rope.scaling == RopeScaling::kYarn) continue;
    return InvalidInput(fmt::format(
        "{} goes with YaRN, but the model's scaling is '{}': add --rope-scaling yarn --rope-scale "
        "N",
        flag, RopeScalingName(rope.scaling)));
  }
  if (overrides.orig_ctx) {
    if (*overrides.orig_ctx < 1) {
      return InvalidInput(fmt::format("--yarn-orig-ctx is {}, but must be at least 1", *overrides.orig_ctx));
    }
    rope.context_length = rope.original_context = *overrides.orig_ctx;
  }
  if (overrides.attn_factor) rope.attn_factor = rope.attn_factor.value_or(1) * *overrides.attn_factor;
  rope.ext_factor = overrides.ext_factor.value_or(rope.ext_factor);
  rope.beta_slow = overrides.beta_slow.value_or(rope.beta_slow);
  rope.beta_fast = overrides.beta_fast.value_or(rope.beta_fast);
  return {};
}

}  // namespace

std::string RopeOverrides::Text() const {
  std::string text;
  const auto add = [&text](std::string_view flag, const auto& value) {
    if (value) text += fmt::format("{}--{} {}", text.empty() ? "" : " ", flag, *value);
  };
  add("rope-scaling", scaling);
  add("rope-scale", scale);
  add("rope-freq-base", freq_base);
  add("rope-freq-scale", freq_scale);
  add("yarn-orig-ctx", orig_ctx);
  add("yarn-ext-factor", ext_factor);
  add("yarn-attn-factor", attn_factor);
  add("yarn-beta-slow", beta_slow);
  add("yarn-beta-fast", beta_fast);
  return text;
}

Result<RopeDeclaration> WithOverrides(RopeDeclaration rope, const RopeOverrides& overrides) {
  if (overrides.freq_base) {
    LH_ASSIGN(rope.base, Base(*overrides.freq_base));
  }
  LH_ASSIGN(const std::optional<double> factor, Factor(overrides));
  LH_ASSIGN(const RopeScaling scaling, ScalingOf(rope, overrides, factor.has_value()));
  LH_TRY(PutScaling(rope, scaling, factor));
  LH_TRY(PutYarn(rope, overrides));
  LH_TRY(DeclaredFrequencies(rope, DeclaredWindow(rope)));
  return rope;
}

}  // namespace longheads
