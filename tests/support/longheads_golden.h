// The goldens of LongHeads: inputs, what the naive twin attends to, what it returns, and the comparison with
// a run of ours. The build makes them (tools/reference/longheads_goldens.py); their manifest says what the
// arrays hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/longheads.h"
#include "formats/npy.h"
#include "tests/support/layer_inputs.h"

namespace longheads {

struct LongHeadsGolden {
  std::string name;
  LongHeadsOptions options;
  Frequencies frequencies;
  std::optional<int64_t> n_prefill;
  std::vector<int64_t> lengths;
  std::vector<int64_t> out_rows;
  double max_logit = 0;
  LayerInputs inputs;  // half-split
  std::vector<uint32_t> chunks;
  std::vector<uint32_t> sets;
  std::vector<int32_t> attended;
  std::vector<float> out;
  std::vector<float> projection;
};

std::vector<std::string> LongHeadsGoldenNames();
LongHeadsGolden LoadLongHeadsGolden(const std::string& name);

// Where a run over the first tokens differs from the golden.
struct GoldenDifferences {
  int64_t n_sets = 0;      // tokens whose (key, distance) pairs differ in some head
  int64_t n_chunks = 0;    // queries whose chunks differ
  int64_t n_attended = 0;  // of the rows that the golden lists pair by pair
  int64_t n_outputs = 0;   // outputs and projections farther off than the bound, or not finite
  double worst = 0;        // the largest share of its bound that an error takes
  std::string first;       // in words

  bool none() const { return n_sets + n_chunks + n_attended + n_outputs == 0; }
};
GoldenDifferences Compare(const LongHeadsGolden& golden, const OneLayer& run);

}  // namespace longheads
