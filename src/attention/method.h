// How an attention method presents itself to the registry: its name and words, its options with their types
// and defaults, and how its policies are made for a model. The same text is what `longheads methods` prints.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/esa_projections.h"
#include "attention/options.h"
#include "attention/policy.h"
#include "base/result.h"
#include "rope/declaration.h"
#include "rope/frequencies.h"

namespace longheads {

// What a method needs to know of a model.
struct AttentionModel {
  HeadShape shape;
  int64_t n_layers = 1;
  int64_t vocab_size = 0;
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
  // What sizes of taste keep to: frequencies may make the window smaller too.
  int64_t usual_window() const { return std::min(trained_window, window); }
  // The longest text that will be read, its answer included; 0: not known. Methods that choose by it say so
  // to the reader of their options (FollowLength).
  int64_t text_tokens = 0;
  // The id of the token that has this text in the vocabulary, if one has. Empty: it is not known.
  std::function<std::optional<int32_t>(std::string_view text)> find_token = {};
  // ESA's compression for queries rotated by `distance`; an error says how to get it. Empty: there is none.
  std::function<Result<std::shared_ptr<const EsaProjections>>(int64_t distance)> esa_projections = {};
};

// One policy for each layer; layers may share.
using LayerPolicies = std::vector<std::shared_ptr<const Policy>>;

struct Method {
  MethodInfo info;
  // Refuses what cannot apply to the model, before any work: the message says which option and what it may
  // be.
  Result<LayerPolicies> (*create)(OptionReader& reader, const AttentionModel& model);
};

inline LayerPolicies SameInEveryLayer(const AttentionModel& model, std::shared_ptr<const Policy> policy) {
  return LayerPolicies(static_cast<std::size_t>(model.n_layers), std::move(policy));
}

}  // namespace longheads
