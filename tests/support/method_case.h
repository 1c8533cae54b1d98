// Methods by the spec that a user types, for the tests that stand beside each of them: what it comes to on a
// small model, what full attention says to the same text, and whether a golden notices a change to its plans.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/method_golden.h"
#include "tests/support/one_layer.h"

namespace longheads {

inline constexpr HeadShape kCaseShape{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64};

// How the first layer of a model of kCaseShape attends, for a text of so many tokens where that is known;
// ESA's projections are random ones. Throws where the spec is refused.
LayerAttention AttentionOfCase(const std::string& spec, int64_t trained_window, int64_t text_tokens = 0);
// Its policy alone.
std::shared_ptr<const Policy> MakeCase(const std::string& spec, int64_t trained_window,
                                       int64_t text_tokens = 0, const HeadShape& shape = kCaseShape);
// What the user reads where it is refused; empty where it is not.
std::string RefusalOf(const std::string& spec, int64_t trained_window, int64_t text_tokens = 0);

// The best kernels, half-split pairs; of a policy alone, with the frequencies of base 10000.
LayerSetup CaseSetup(const Policy& policy, int64_t max_tokens);
LayerSetup CaseSetup(const LayerAttention& attention, int64_t max_tokens);

// (key, distance) pairs of the last of n tokens, which is decoded or part of the prompt; the same for all
// heads, or it throws.
std::vector<std::pair<int32_t, int32_t>> LastSees(const Policy& policy, int64_t n, bool decode);

// The largest difference from full attention over a text of n tokens, in prefill and in decode, as a share of
// what roundings explain; infinite where other keys or distances are seen.
double DifferenceFromFull(const Policy& policy, int64_t n);
double DifferenceFromFull(const LayerAttention& attention, int64_t n);

// The keys that a plan reads for the token at position n - 1, decoded; and how many of them it sees.
struct KeysRead {
  int64_t read = 0;
  int64_t seen = 0;
};
KeysRead ReadForLast(const Policy& policy, int64_t n);

}  // namespace longheads
