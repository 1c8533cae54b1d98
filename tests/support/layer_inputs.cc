#include "tests/support/layer_inputs.h"

#include <algorithm>
#include <cmath>

#include "tests/support/rounding.h"

namespace longheads {
namespace {

// The largest Euclidean norm of a row.
double LargestNorm(const std::vector<float>& rows, int64_t d) {
  double largest = 0;
  for (std::size_t row = 0; row < rows.size(); row += static_cast<std::size_t>(d)) {
    double squares = 0;
    for (std::size_t m = row; m < row + static_cast<std::size_t>(d); ++m) {
      squares += static_cast<double>(rows[m]) * rows[m];
    }
    largest = std::max(largest, squares);
  }
  return std::sqrt(largest);
}

}  // namespace

double Project(const float* row, int64_t d) {
  const std::vector<float> direction = Uniform("projection", 0, d);
  double sum = 0;
  for (int64_t m = 0; m < d; ++m) sum += static_cast<double>(direction[static_cast<std::size_t>(m)]) * row[m];
  return sum;
}

std::vector<float> Uniform(std::string_view name, uint64_t seed, int64_t n) {
  uint64_t state = 0xcbf29ce484222325;
  for (const char c : name) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  state ^= seed;
  std::vector<float> values;
  for (int64_t x = 0; x < n; ++x) {
    uint64_t z = state + (static_cast<uint64_t>(x) + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    values.push_back(static_cast<float>(static_cast<double>(z >> 40) * 0x1p-23 - 1));
  }
  return values;
}

LayerInputs UniformInputs(const HeadShape& shape, int64_t n, uint64_t seed, const InputScales& scales) {
  LayerInputs inputs{.shape = shape,
                     .n = n,
                     .q = Uniform("q", seed, n * shape.n_heads * shape.head_dim),
                     .k = Uniform("k", seed, n * shape.n_kv_heads * shape.head_dim),
                     .v = Uniform("v", seed, n * shape.n_kv_heads * shape.head_dim)};
  for (float& q : inputs.q) q *= static_cast<float>(scales.q);
  for (float& k : inputs.k) k *= static_cast<float>(scales.k);
  for (float& v : inputs.v) v *= static_cast<float>(scales.v);
  return inputs;
}

ErrorBound BoundOf(const LayerInputs& inputs, double max_logit, double logit_error, double value_error) {
  const double d = static_cast<double>(inputs.shape.head_dim);
  // A logit is a sum of d products; rotating both factors and scaling are about 16 roundings more, and the
  // largest logit is subtracted.
  const double logit = Deviation(d + 16, max_logit) + Deviation(1, 2 * max_logit);
  // A page's probabilities and its weighted values are sums of 256; exp and the merges of pages are as many
  // again. With probabilities p the output is off by sum p_j (e_j - e) v_j, where e is the mean of the
  // logits' errors: below |v| times the deviation of one.
  const double sums = 2 * Deviation(512, 1);
  const double relative = 6 * (logit + sums) + std::expm1(2 * logit_error) + value_error;
  double largest = 0;
  for (const float v : inputs.v) largest = std::max(largest, std::abs(static_cast<double>(v)));
  double largest_projection = 0;
  for (std::size_t row = 0; row < inputs.v.size(); row += static_cast<std::size_t>(inputs.shape.head_dim)) {
    largest_projection =
        std::max(largest_projection, std::abs(Project(inputs.v.data() + row, inputs.shape.head_dim)));
  }
  const double direction =
      LargestNorm(Uniform("projection", 0, inputs.shape.head_dim), inputs.shape.head_dim);
  return {.out = largest * relative,
          .projection = largest_projection * relative + direction * largest * 6 * sums};
}

}  // namespace longheads
