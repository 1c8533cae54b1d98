#include "kernels/rotation_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace longheads {

RotationTable::RotationTable(std::span<const double> theta, int64_t head_dim, PairLayout layout,
                             int64_t n_positions)
    : theta_(theta.begin(), theta.end()), head_dim_(head_dim), layout_(layout), low_(kSpan * 2 * head_dim) {
  LH_CHECK(head_dim >= 2 * static_cast<int64_t>(theta.size()));
  for (int64_t x = 0; x < kSpan; ++x) Fill(x, low_.data() + x * 2 * head_dim);
  Ensure(n_positions);
}

void RotationTable::Ensure(int64_t n_positions) {
  const int64_t needed = (n_positions + kSpan - 1) / kSpan;
  if (needed <= n_high_) return;
  // A text that grows by a token at a time asks for more every so often: not for all that there is anew.
  const int64_t n_high = n_high_ == 0 ? needed : std::max(needed, n_high_ + n_high_ / 8 + 1);
  Buffer<float> high(n_high * 2 * head_dim_);  // where memory is short, the old table stays
  std::copy_n(high_.data(), n_high_ * 2 * head_dim_, high.data());
  for (int64_t h = n_high_; h < n_high; ++h) Fill(h * kSpan, high.data() + h * 2 * head_dim_);
  high_ = std::move(high);
  n_high_ = n_high;
}

void RotationTable::Fill(int64_t position, float* cos_sin) const {
  float* const cosine = cos_sin;
  float* const sine = cos_sin + head_dim_;
  for (int64_t m = 0; m < head_dim_; ++m) {
    cosine[m] = 1;
    sine[m] = 0;
  }
  const int64_t n_pairs = static_cast<int64_t>(theta_.size());
  for (int64_t m = 0; m < n_pairs; ++m) {
    const double angle = static_cast<double>(position) * theta_[m];
    const int64_t first = layout_ == PairLayout::kInterleaved ? 2 * m : m;
    const int64_t second = layout_ == PairLayout::kInterleaved ? 2 * m + 1 : m + n_pairs;
    cosine[first] = cosine[second] = static_cast<float>(std::cos(angle));
    sine[second] = static_cast<float>(std::sin(angle));
    sine[first] = -sine[second];
  }
}

}  // namespace longheads
