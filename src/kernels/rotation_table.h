// Rotations R(x) for whole positions x, as the kernels want them: r[m] = q[m] * cos[m] + q[partner(m)] *
// sin[m]. The angles per position are the caller's: rope/ makes them, any other source is as good.
//
// Angles are computed in float64. A position splits into x = 256 * high + low, and R(x) = R(256 * high)
// R(low) is put together in float32 where it is used: two short tables serve a text of any length, and the
// error stays at two roundings (2^-23) however large x is, where x * theta in float32 would be off by 0.007
// rad at 131072.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace longheads {

// Which dimensions form a pair: (2m, 2m+1) as GGUF stores the Llama family, or (m, m + d/2) as Hugging Face
// does.
enum class PairLayout : uint8_t { kInterleaved, kHalfSplit };

class RotationTable {
 public:
  static constexpr int64_t kSpan = 256;  // positions in the low table

  // theta [rotary_dim / 2]: radians per position of each pair. head_dim >= 2 * theta.size(); dimensions past
  // the rotary ones are left as they are. n_positions is the first position that can not be asked for; Ensure
  // raises it.
  RotationTable(std::span<const double> theta, int64_t head_dim, PairLayout layout, int64_t n_positions);

  // What Ensure makes room for at most, for so many positions.
  static uint64_t Bytes(int64_t n_positions, int64_t head_dim) {
    const int64_t n_high = (n_positions + kSpan - 1) / kSpan;
    return static_cast<uint64_t>((n_high + n_high / 8 + 1) * 2 * head_dim) * sizeof(float);
  }
  // Not thread-safe: call it before the threads that read the table start.
  void Ensure(int64_t n_positions);

  int64_t head_dim() const { return head_dim_; }
  PairLayout layout() const { return layout_; }
  int64_t n_positions() const { return n_high_ * kSpan; }
  // The other dimension of m's pair; m itself past the rotary dimensions.
  int64_t partner(int64_t m) const {
    if (m >= 2 * n_pairs()) return m;
    if (layout_ == PairLayout::kInterleaved) return m ^ 1;
    return m < n_pairs() ? m + n_pairs() : m - n_pairs();
  }
  int64_t n_pairs() const { return static_cast<int64_t>(theta_.size()); }

  // [head_dim] each; the sine carries the sign with which the partner enters.
  const float* low_cos(int64_t x) const { return low_.data() + (x % kSpan) * 2 * head_dim_; }
  const float* low_sin(int64_t x) const { return low_cos(x) + head_dim_; }
  const float* high_cos(int64_t x) const { return high_.data() + (x / kSpan) * 2 * head_dim_; }
  const float* high_sin(int64_t x) const { return high_cos(x) + head_dim_; }

 private:
  void Fill(int64_t position, float* cos_sin) const;

  std::vector<double> theta_;
  int64_t head_dim_;
  PairLayout layout_;
  int64_t n_high_ = 0;
  Buffer<float> low_;   // [kSpan, 2, head_dim]
  Buffer<float> high_;  // [n_high, 2, head_dim]
};

}  // namespace longheads
