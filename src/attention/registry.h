// Every attention method by name: one line each, with typed, documented options. What --attn takes, what
// `longheads methods` prints.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/options.h"
#include "attention/policy.h"
#include "attention/spec.h"
#include "rope/declaration.h"
#include "rope/frequencies.h"

namespace longheads {

// What a method needs to know of a model.
struct AttentionModel {
  HeadShape shape;
  int64_t trained_window = 0;  // tokens that the model reads with its own frequencies
  PairLayout layout = PairLayout::kInterleaved;
  RopeDeclaration rope = {};
  Frequencies trained;  // its own: those that `rope` declares
  // Tokens that full attention reads with the frequencies of the spec; MakeAttention sets it before a policy
  // sees it. A schedule such as "yarn:factor=4" makes it larger than trained_window. A policy takes it for
  // everything that asks how far positions may reach: where full attention ends (LongHeads' begin), how large
  // a window may be, when to warn. Sizes that are a matter of taste (LongHeads' chunk and window) keep to
  // trained_window: that is what LongHeads' "w/ NTK init" and "w/ PI init" do, which raise `begin` and leave
  // the rest.
  int64_t window = 0;
};

// How one layer attends. Layers may differ; today every method gives all layers the same.
struct LayerAttention {
  std::shared_ptr<const Policy> policy;
  Frequencies frequencies;
  std::string explain_frequencies = {};  // one line; empty for the model's own
};

std::vector<std::string> PolicyNames();
std::vector<std::string> FrequencyNames();
// Null where there is none of that name.
const MethodInfo* FindMethod(std::string_view name);
const std::vector<MethodInfo>& Methods();

// The attention of every layer under a spec ("auto", "longheads,chunk=128"). Refuses what cannot apply to the
// model, before any work: the message says which option and what it may be.
Result<std::vector<LayerAttention>> MakeAttention(std::string_view spec, const AttentionModel& model,
                                                  int64_t n_layers);

}  // namespace longheads
