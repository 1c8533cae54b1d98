#include "attention/esa_fit.h"

#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "attention/esa.h"
#include "attention/esa_vectors.h"
#include "base/check.h"

namespace longheads {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

Eigen::Map<const Matrix> AsMatrix(const std::vector<double>& values, int64_t n) {
  return {values.data(), n, n};
}

struct Roots {
  Matrix root;
  Matrix inverse;  // pseudo-inverse: directions without data have 0
};

// S^(1/2) and S^(-1/2) of a second moment.
Roots RootsOf(const Matrix& moment) {
  // Eigenvalues of what has no data are roundings of 0.
  constexpr double kFloor = 1e-12;
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(moment);
  const Eigen::VectorXd values = solver.eigenvalues();
  const double least = kFloor * values.maxCoeff();
  Eigen::VectorXd root = Eigen::VectorXd::Zero(values.size());
  Eigen::VectorXd inverse = root;
  for (Eigen::Index i = 0; i < values.size(); ++i) {
    if (!(values[i] > least)) continue;
    root[i] = std::sqrt(values[i]);
    inverse[i] = 1 / root[i];
  }
  const Matrix& columns = solver.eigenvectors();
  return {columns * root.asDiagonal() * columns.transpose(),
          columns * inverse.asDiagonal() * columns.transpose()};
}

std::vector<float> ToFloats(const Matrix& m) {
  std::vector<float> values(static_cast<std::size_t>(m.size()));
  std::transform(m.data(), m.data() + m.size(), values.begin(),
                 [](double value) { return static_cast<float>(value); });
  return values;
}

}  // namespace

void EsaMoments::Add(const float* q_rows, const float* k_rows, int64_t n) {
  const auto add = [&](const float* rows, std::vector<double>& moment) {
    const Matrix x = Floats(rows, n, n_columns).cast<double>();
    Eigen::Map<Matrix> sum(moment.data(), n_columns, n_columns);
    sum.noalias() += x.transpose() * x;
  };
  add(q_rows, q);
  add(k_rows, k);
  n_tokens += n;
}

EsaFit FitEsa(const EsaMoments& moments, int64_t n_rows) {
  const int64_t n = moments.n_columns;
  LH_CHECK(n_rows > 0 && n_rows <= n);
  const Roots q = RootsOf(AsMatrix(moments.q, n));
  const Roots k = RootsOf(AsMatrix(moments.k, n));
  const Eigen::BDCSVD<Matrix> svd(q.root * k.root, Eigen::ComputeThinU | Eigen::ComputeThinV);
  const Eigen::VectorXd singular = svd.singularValues();
  const Eigen::VectorXd half = singular.head(n_rows).cwiseSqrt();
  const Matrix w_q = half.asDiagonal() * svd.matrixU().leftCols(n_rows).transpose() * q.inverse;
  const Matrix w_k = half.asDiagonal() * svd.matrixV().leftCols(n_rows).transpose() * k.inverse;
  return {.projections = {.q = ToFloats(w_q), .k = ToFloats(w_k)},
          .singular = {singular.data(), singular.data() + n}};
}

double EsaSquaredError(const EsaProjections::Layer& projections, const EsaMoments& moments) {
  const int64_t n = moments.n_columns;
  const int64_t n_rows = static_cast<int64_t>(projections.q.size()) / n;
  const auto sq = AsMatrix(moments.q, n);
  const auto sk = AsMatrix(moments.k, n);
  const Matrix w_q = Floats(projections.q.data(), n_rows, n).cast<double>();
  const Matrix w_k = Floats(projections.k.data(), n_rows, n).cast<double>();
  const Matrix rest = Matrix::Identity(n, n) - w_q.transpose() * w_k;
  const double error = (sk * rest.transpose() * sq * rest).trace();
  return error / (sk * sq).trace();
}

// ---- Calibration

namespace {

class Calibration : public Policy {
 public:
  Calibration(const HeadShape& shape, int64_t distance, EsaLayerMoments& sums)
      : full_({.n_local = Policy::kNoLimit / 2, .score = EsaOptions::Score::kExact}, shape, nullptr),
        distance_(distance),
        sums_(sums) {}

  KeyPlane Plane() const override { return full_.Plane(); }
  int64_t RotationBound(int64_t n) const override { return std::max(n, distance_ + 1); }
  std::unique_ptr<PolicyState> NewState() const override { return full_.NewState(); }
  std::unique_ptr<PolicyScratch> NewScratch() const override { return full_.NewScratch(); }
  int64_t StepTokens() const override { return full_.StepTokens(); }
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override {
    full_.BuildPlan(block, phase, kernels, scratch, plan);
  }
  std::string Warning(int64_t) const override { return ""; }
  std::string Explain() const override { return "full attention, to fit ESA's compression"; }

  void Extend(const StepInput& input, PolicyState& state) const override {
    full_.Extend(input, state);
    const int64_t layer = input.layer - sums_.first_layer;
    if (layer < 0 || layer >= static_cast<int64_t>(sums_.layers.size())) return;
    EsaMoments& moments = sums_.layers[static_cast<std::size_t>(layer)];
    std::vector<float> q(static_cast<std::size_t>(input.n_tokens * moments.n_columns));
    std::vector<float> k(q.size());
    RotateEsaQueries(input, distance_, /*fold=*/true, q.data());
    CopyEsaKeys(input, input.token_begin, input.token_begin + input.n_tokens, k.data());
    moments.Add(q.data(), k.data(), input.n_tokens);
  }

 private:
  Esa full_;  // whose local part is never left
  int64_t distance_;
  EsaLayerMoments& sums_;
};

}  // namespace

LayerPolicies EsaCalibration(const AttentionModel& model, int64_t distance, EsaLayerMoments& sums) {
  return SameInEveryLayer(model, std::make_shared<Calibration>(model.shape, distance, sums));
}

}  // namespace longheads
