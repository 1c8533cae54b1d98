#include "eval/interval.h"

#include <algorithm>
#include <cmath>

namespace longheads {
namespace {

constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5% point

// Student's t of so many degrees of freedom: the closed forms of 1 and 2, and from 3 on the expansion around
// the normal distribution's point, which is right to 0.2% there (Abramowitz and Stegun 1964, 26.7.5).
double StudentT975(int64_t freedom) {
  if (freedom == 1) return 12.706204736;
  if (freedom == 2) return 4.302652730;
  const double v = static_cast<double>(freedom), z2 = kZ * kZ;
  const double g1 = (z2 + 1) / 4;
  const double g2 = ((5 * z2 + 16) * z2 + 3) / 96;
  const double g3 = (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
  const double g4 = ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160;
  return kZ * (1 + (g1 + (g2 + (g3 + g4 / v) / v) / v) / v);
}

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
  found->one_outcome =
      found->one_outcome && (score == 0 || score == 1) && found->sum == score * static_cast<double>(found->n);
}

double ClusteredScores::mean() const { return sum_ / static_cast<double>(n_); }

double ClusteredScores::standard_error() const {
  double squares = 0;
  for (const Document& d : documents_) {
    const double residual = d.sum - static_cast<double>(d.n) * mean();
    squares += residual * residual;
  }
  if (n_documents() < 2) return 0;
  const double d = static_cast<double>(n_documents());
  return std::sqrt(squares * d / (d - 1)) / static_cast<double>(n_);
}

Interval ClusteredScores::ShareInterval() const {
  if (n_ == 0) return {0, 1};
  // Rounding in the sums must not lead out of the range.
  const double p = std::clamp(mean(), 0.0, 1.0);
  const double error = standard_error();
  constexpr double kAlike = 1e-12;
  const double d = static_cast<double>(n_documents());
  if (n_documents() < 2 || error < kAlike) return WilsonInterval(p, d);
  // A document that is right or wrong as a whole is a trial, and how trials scatter is known.
  const bool trials = std::ranges::all_of(documents_, &Document::one_outcome);
  const double known = trials ? d / (d - 1) : std::pow(kZ / StudentT975(n_documents() - 1), 2);
  return WilsonInterval(p, known * p * (1 - p) / (error * error));
}

Interval ClusteredScores::NormalInterval() const {
  const double half = n_documents() < 2 ? 0 : StudentT975(n_documents() - 1) * standard_error();
  return {mean() - half, mean() + half};
}

Interval PairedShareInterval(const ClusteredScores& a, const ClusteredScores& b, double correlation) {
  const Interval of_a = a.ShareInterval(), of_b = b.ShareInterval();
  const auto together = [correlation](double x, double y) {
    return std::sqrt(std::max(0.0, x * x - 2 * correlation * x * y + y * y));
  };
  const double difference = a.mean() - b.mean();
  return {std::max(-1.0, difference - together(a.mean() - of_a.low, of_b.high - b.mean())),
          std::min(1.0, difference + together(of_a.high - a.mean(), b.mean() - of_b.low))};
}

}  // namespace longheads
