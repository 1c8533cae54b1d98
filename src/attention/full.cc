#include "attention/full.h"

#include <fmt/format.h>

#include <algorithm>

namespace longheads {

void PlanFull(const QueryBlock& block, int64_t begin, int64_t end, int64_t group, Plan& plan) {
  const int64_t row_begin = static_cast<int64_t>(plan.rows.size());
  int64_t key_end = 0;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t position = block.tokens[static_cast<std::size_t>(t)].position;
    key_end = std::max(key_end, position + 1);
    for (int64_t g = 0; g < group; ++g) {
      plan.rows.push_back({static_cast<int32_t>(t * group + g), static_cast<int32_t>(position)});
    }
  }
  plan.segments.push_back({.sequence = block.tokens[static_cast<std::size_t>(begin)].sequence,
                           .key_begin = 0,
                           .key_end = key_end,
                           .row_begin = row_begin,
                           .row_end = static_cast<int64_t>(plan.rows.size())});
}

void FullAttention::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                              Plan& plan) const {
  const int64_t n = static_cast<int64_t>(block.tokens.size());
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    end = block.RunEnd(begin);
    PlanFull(block, begin, end, shape_.group(), plan);
  }
}

std::string FullAttention::Warning(int64_t n_tokens) const {
  if (n_tokens <= window_) return "";
  return fmt::format(
      "full attention over {} tokens goes past the model's window of {}: expect nonsense (--attn auto "
      "or longheads reads longer texts)",
      n_tokens, window_);
}

std::string FullAttention::Explain() const {
  return "full attention: every token sees every token before it";
}

Method FullMethod() {
  return {{.name = "full",
           .summary = "Full causal attention. Past the trained window models break down; it warns.",
           .source = "Vaswani et al. 2017",
           .options = {}},
          [](OptionReader&, const AttentionModel& model) -> Result<LayerPolicies> {
            return SameInEveryLayer(model, std::make_shared<FullAttention>(model.shape, model.window));
          }};
}

}  // namespace longheads
