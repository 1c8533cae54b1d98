// What a model file declares of a model's RoPE, and the frequencies that follow from it: the model's own,
// from which every schedule starts. The numbers mean what they mean in llama.cpp, whose files they come from;
// what a user says in their place is in overrides.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rope/frequencies.h"

namespace longheads {

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn, kLongrope };

// "none", "linear", "yarn", "longrope", as GGUF writes them.
std::string_view RopeScalingName(RopeScaling scaling);
std::optional<RopeScaling> RopeScalingOf(std::string_view name);

struct RopeDeclaration {
  double base = 10000;
  int64_t rotary_dim = 0;
  int64_t context_length = 0;        // the window the file names, in tokens
  std::vector<float> divisors = {};  // rope_freqs: empty, or [rotary_dim / 2] (llama3's scaling as data)

  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             // of linear and YaRN scaling; of LongRoPE 1 says that it is not declared
  int64_t original_context = 0;  // the window before scaling, in tokens; 0: not declared
  // Multiplies the amplitude. Of LongRoPE it is the amplitude; where it is not declared, the formula's.
  std::optional<double> attn_factor = {};

  // YaRN
  double beta_fast = 32;
  double beta_slow = 1;
  double ext_factor = 1;
  double log_multiplier = 0;             // not 0: DeepSeek's mscale_all_dim, with mscale = 1
  std::optional<double> magnitude = {};  // takes the place of 0.1 ln s + 1 (Hugging Face's attention_factor)

  // LongRoPE: [rotary_dim / 2] each
  std::vector<float> short_factors = {};
  std::vector<float> long_factors = {};
};

// Tokens that the model reads with its own frequencies. A file that names both windows may give either as its
// context length: the larger of what it names and original_context * factor.
int64_t DeclaredWindow(const RopeDeclaration& rope);

// The model's own frequencies for a text of n_tokens, which matter to LongRoPE alone.
Result<Frequencies> DeclaredFrequencies(const RopeDeclaration& rope, int64_t n_tokens);

// "base 500000, YaRN with factor 4 from 32768 tokens".
std::string DescribeRope(const RopeDeclaration& rope);

}  // namespace longheads
