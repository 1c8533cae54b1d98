// Fits the compression of ESA's scores to a text in closed form: the projections of r rows for which
// (W_q q).(W_k k) is as near to q.k as any of that rank can be, over all pairs of the text's queries and keys
// (equation 7 of the paper without biases). What the best is depends on the second moments alone,
//   sum over (q, k) of (q.k - (W_q q).(W_k k))^2 = |Sq^(1/2) (1 - W_q^T W_k) Sk^(1/2)|^2,
// and is the truncated singular value decomposition of Sq^(1/2) Sk^(1/2) in the middle. Which text, and where
// the result is kept, is the engine's business.
#pragma once

#include <memory>
#include <vector>

#include "attention/esa_projections.h"
#include "attention/method.h"

namespace longheads {

// Sums over a text's tokens in one layer; q and k as EsaProjections has them.
struct EsaMoments {
  int64_t n_columns = 0;
  int64_t n_tokens = 0;
  std::vector<double> q;  // [n_columns, n_columns]: sum of q q^T
  std::vector<double> k;  // [n_columns, n_columns]: sum of k k^T

  explicit EsaMoments(int64_t columns)
      : n_columns(columns),
        q(static_cast<std::size_t>(columns * columns)),
        k(static_cast<std::size_t>(columns * columns)) {}
  // Rows [n, n_columns].
  void Add(const float* q_rows, const float* k_rows, int64_t n);
};

struct EsaFit {
  EsaProjections::Layer projections;
  std::vector<double> singular;  // [n_columns]: those of Sq^(1/2) Sk^(1/2), descending
};
// Projections of n_rows <= n_columns rows. Rows in whose direction there are no data are zero.
EsaFit FitEsa(const EsaMoments& moments, int64_t n_rows);
// The sum over all pairs of (q.k - (W_q q).(W_k k))^2 as a share of the sum of (q.k)^2.
double EsaSquaredError(const EsaProjections::Layer& projections, const EsaMoments& moments);

// The moments of layers [first_layer, first_layer + layers.size()).
struct EsaLayerMoments {
  int64_t first_layer = 0;
  std::vector<EsaMoments> layers;
};

// Full attention that adds up the moments of what it reads, with queries rotated by `distance`: for a model
// that runs over the calibration text. One engine at a time may use it; `sums` must outlive it.
LayerPolicies EsaCalibration(const AttentionModel& model, int64_t distance, EsaLayerMoments& sums);

}  // namespace longheads
