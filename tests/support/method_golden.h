// The goldens of the methods, whichever the method: inputs, what the naive twin attends to, what it returns,
// and the comparison with a run of ours. The build makes them; tools/reference/golden.py specifies them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "tests/support/layer_inputs.h"

namespace longheads {

struct MethodGolden {
  std::string name;
  std::string spec;  // as --attn takes it, frequencies included
  int64_t trained_window = 0;
  double base = 0;
  std::optional<std::vector<int64_t>> calls;  // of the prefill, where the definition depends on them
  std::optional<int64_t> n_prefill;           // the rest is decoded; nothing: it makes no difference
  std::vector<int64_t> lengths;
  int64_t unit = 1;   // distances are in 1 / unit
  int64_t layer = 0;  // which layer of the model it is
  nlohmann::json extra;
  double max_logit = 0;
  LayerInputs inputs;  // half-split
  std::vector<int64_t> out_rows;
  std::vector<uint32_t> sets;     // [n, n_heads]
  std::vector<int32_t> attended;  // [m, 4]
  std::vector<float> out;         // [out_rows, n_heads, head_dim]
  std::vector<float> projection;  // [n, n_heads]
};

// Names of the goldens of one method, "full" or "self-extend"; of all, where it is empty.
std::vector<std::string> MethodGoldenNames(const std::string& method);
MethodGolden LoadMethodGolden(const std::string& name);
// What the golden's layer attends by, made from its spec for a model like the twin's; throws where it is
// refused.
LayerAttention AttentionOf(const MethodGolden& golden, PairLayout layout);

// Where a run over the first tokens differs from the golden; `unit` is that of the run's plane.
struct MethodDifferences {
  int64_t n_sets = 0;     // queries whose (key, distance) pairs differ
  int64_t n_outputs = 0;  // outputs and projections farther off than the bound, or not finite
  double worst = 0;       // the largest share of its bound that an error takes
  std::string first;      // in words

  bool none() const { return n_sets + n_outputs == 0; }
};
MethodDifferences Compare(const MethodGolden& golden, const OneLayer& run, int64_t unit);

// Differences from a golden of a run whose plans were changed before they ran.
using Mutation = std::function<void(const QueryBlock&, Plan&)>;
MethodDifferences MutatedDifferences(const std::string& name, const Mutation& mutation);
// Whether there are any; throws where there are without the change.
bool Notices(const std::string& name, const Mutation& mutation);

}  // namespace longheads
