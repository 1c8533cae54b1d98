// Inputs of one layer that the goldens' references can make too, and how far float32 may be from float64 on
// them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/support/one_layer.h"

namespace longheads {

// n values in [-1, 1), the same that tools/reference/uniform.py makes.
std::vector<float> Uniform(std::string_view name, uint64_t seed, int64_t n);

// Factors on the uniform values.
struct InputScales {
  double q = 3, k = 2, v = 4;  // the goldens' usual ones
};
// q, k and v of plain random inputs.
LayerInputs UniformInputs(const HeadShape& shape, int64_t n, uint64_t seed, const InputScales& scales = {});

// How far float32 may be from float64: six standard deviations, where roundings are independent of one
// another.
struct ErrorBound {
  double out;         // of every element of an output
  double projection;  // of an output's product with a fixed vector
};
// logit_error: what logits are off by on top of float32's roundings; value_error: relative, of values.
ErrorBound BoundOf(const LayerInputs& inputs, double max_logit, double logit_error = 0,
                   double value_error = 0);

// The product with the fixed vector of the goldens' projections. row: [d].
double Project(const float* row, int64_t d);

}  // namespace longheads
