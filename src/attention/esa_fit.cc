#include "attention/esa_fit.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>

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

// values[i]^power; 0 for those that are roundings of 0, of directions without data.
Eigen::VectorXd Power(const Eigen::VectorXd& values, double power) {
  const double roundings = std::numeric_limits<double>::epsilon() * static_cast<double>(values.size());
  const double least = roundings * values.maxCoeff();
  return values.unaryExpr([=](double value) { return value > least ? std::pow(value, power) : 0; });
}

// S^power of a second moment S.
Matrix Power(const Eigen::SelfAdjointEigenSolver<Matrix>& moment, double power) {
  const Matrix& columns = moment.eigenvectors();
  return columns * Power(moment.eigenvalues(), power).asDiagonal() * columns.transpose();
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
  using Solver = Eigen::SelfAdjointEigenSolver<Matrix>;
  const auto sq = AsMatrix(moments.q, n);
  const Solver q(sq), k(AsMatrix(moments.k, n));
  // C = Sq^1/2 Sk^1/2 = U diag(s) V^T. The eigenvectors of C^T C are V, its eigenvalues s^2, and
  // U = C V diag(1/s): so U^T Sq^-1/2 is diag(1/s) V^T Sk^1/2, in the directions that queries have.
  const Matrix root_k = Power(k, 0.5);
  const Solver squared(root_k * sq * root_k);
  const Eigen::VectorXd squares = squared.eigenvalues().reverse();  // descending
  const Matrix v = squared.eigenvectors().rowwise().reverse().leftCols(n_rows).transpose();
  const Matrix w_q = Power(squares, -0.25).head(n_rows).asDiagonal() * v * root_k * Power(q, 0);
  const Matrix w_k = Power(squares, 0.25).head(n_rows).asDiagonal() * v * Power(k, -0.5);
  const Eigen::VectorXd singular = Power(squares, 0.5);
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
