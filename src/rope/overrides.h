// What a user says of a model's RoPE in its file's place: llama.cpp's flags of the same names. They change
// the model's own frequencies, from which the schedules of --attn start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rope/declaration.h"

namespace longheads {

struct RopeOverrides {
  std::optional<std::string> scaling = {};  // --rope-scaling none|linear|yarn
  std::optional<double> scale = {};         // --rope-scale
  std::optional<double> freq_base = {};     // --rope-freq-base
  std::optional<double> freq_scale = {};    // --rope-freq-scale: 1 / scale
  std::optional<int64_t> orig_ctx = {};     // --yarn-orig-ctx, tokens
  std::optional<double> ext_factor = {};    // --yarn-ext-factor
  std::optional<double> attn_factor = {};   // --yarn-attn-factor: multiplies the amplitude
  std::optional<double> beta_slow = {};     // --yarn-beta-slow
  std::optional<double> beta_fast = {};     // --yarn-beta-fast

  // As it would be typed: "--rope-scaling yarn --rope-scale 4"; empty where nothing is said.
  std::string Text() const;
};

// The declaration with what the user says put in. A scaling that is given, or changed by its factor, starts
// from the window that the model has without scaling. Refuses what contradicts itself or would have no
// effect.
Result<RopeDeclaration> WithOverrides(RopeDeclaration rope, const RopeOverrides& overrides);

}  // namespace longheads
