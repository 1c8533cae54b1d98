#include "eval/interval.h"

#include <algorithm>
#include <cmath>

namespace longheads {
namespace {

constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5% point

}  // namespace

Interval WilsonInterval(double share, double n) {
  if (n <= 0) return {0, 1};
  const double z2 = kZ * kZ;
  const double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

void ClusteredScores::Add(const std::string& document, double score) {
  ++n_;
  sum_ += score;
  // Samples of one document follow each other as a rule.
  auto found = std::find_if(documents_.rbegin(), documents_.rend(),
                            [&](const Document& d) { return d.name == document; });
  if (found == documents_.rend()) {
    documents_.push_back({.name = document});
    found = documents_.rbegin();
  }
  found->sum += score;
  ++found->n;
}

double ClusteredScores::mean() const { return sum_ / static_cast<double>(n_); }

double ClusteredScores::standard_error() const {
  double squares = 0;
  for (const Document& d : documents_) {
    const double residual = d.sum - static_cast<double>(d.n) * mean();
    squares += residual * residual;
  }
  return std::sqrt(squares) / static_cast<double>(n_);
}

Interval ClusteredScores::ShareInterval() const {
  if (n_ == 0) return {0, 1};
  // Rounding in the sums must not lead out of the range.
  const double p = std::clamp(mean(), 0.0, 1.0);
  const double error = standard_error();
  constexpr double kAlike = 1e-12;
  const bool alike = n_documents() < 2 || error < kAlike;
  return WilsonInterval(p, alike ? static_cast<double>(n_documents()) : p * (1 - p) / (error * error));
}

Interval ClusteredScores::NormalInterval() const {
  const double half = kZ * standard_error();
  return {mean() - half, mean() + half};
}

}  // namespace longheads
