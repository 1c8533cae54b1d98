#include "attention/esa_recall.h"

#include <algorithm>

#include "attention/esa_choice.h"
#include "attention/esa_vectors.h"
#include "base/cancel.h"
#include "base/check.h"

namespace longheads {
namespace {

// The first `dim` of each token's numbers.
struct FirstNumbers : EsaKeys {
  const float* Page(int64_t, int64_t page, float* scratch) const override {
    for (int64_t i = 0; i < kPageTokens; ++i) {
      std::copy_n(keys + (page * kPageTokens + i) * n_rows, dim, scratch + i * dim);
    }
    return scratch;
  }
  int64_t PageFloats() const override { return kPageTokens * dim; }

  const float* keys = nullptr;  // [tokens in whole pages, n_rows]
  int64_t n_rows = 0;
  int64_t dim = 0;
};

class RecallPolicy : public Policy {
 public:
  RecallPolicy(const EsaOptions& options, const HeadShape& shape,
               std::shared_ptr<const EsaProjections> projections, EsaRecall& recall)
      : exact_(options, shape, nullptr),
        options_(options),
        projections_(std::move(projections)),
        recall_(recall) {
    LH_CHECK(options.score == EsaOptions::Score::kExact && options.share == EsaOptions::Share::kSum);
    recall_.layers.clear();
  }

  KeyPlane Plane() const override { return exact_.Plane(); }
  int64_t RotationBound(int64_t n) const override { return exact_.RotationBound(n); }
  std::unique_ptr<PolicyState> NewState() const override { return exact_.NewState(); }
  std::unique_ptr<PolicyScratch> NewScratch() const override { return exact_.NewScratch(); }
  int64_t StepTokens() const override { return exact_.StepTokens(); }
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override {
    exact_.BuildPlan(block, phase, kernels, scratch, plan);
  }
  std::string Warning(int64_t) const override { return ""; }
  std::string Explain() const override { return exact_.Explain(); }

  void Extend(const StepInput& input, PolicyState& state) const override {
    exact_.Extend(input, state);
    const std::span<const int32_t> chosen = exact_.Chosen(state);
    const bool stopped = Cancelled(input.cancel);
    if (!chosen.empty() && !stopped && input.token_begin >= recall_.from) Compare(input, chosen);
  }

 private:
  // [n, n_rows]: rows through the matrix, tile by tile.
  template <typename RowsOf>
  std::vector<float> Project(const StepInput& input, int64_t n, const std::vector<float>& matrix,
                             const RowsOf& rows_of) const {
    const int64_t n_rows = projections_->n_rows;
    const int64_t columns = projections_->n_columns;
    std::vector<float> out(
        static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens * kPageTokens * n_rows));
    input.pool->Run((n + kEsaTile - 1) / kEsaTile, [&](int64_t task, int) {
      const int64_t begin = task * kEsaTile;
      const int64_t here = std::min(kEsaTile, n - begin);
      std::vector<float> rows(static_cast<std::size_t>(here * columns));
      Buffer<float> workspace;
      rows_of(begin, here, rows.data());
      ProjectEsaRows(rows.data(), here, matrix, columns, n_rows, input.executor->kernels(), workspace,
                     out.data() + begin * n_rows);
    });
    return out;
  }

  void Compare(const StepInput& input, std::span<const int32_t> chosen) const {
    const EsaProjections::Layer& layer = projections_->layers[static_cast<std::size_t>(input.layer)];
    const int64_t n_rows = projections_->n_rows;
    const int64_t columns = projections_->n_columns;
    const int64_t end = input.token_begin - options_.n_local;
    std::vector<float> folded(static_cast<std::size_t>(input.n_tokens * columns));
    RotateEsaQueries(input, options_.n_local, /*fold=*/true, folded.data());
    const std::vector<float> queries =
        Project(input, input.n_tokens, layer.q, [&](int64_t begin, int64_t n, float* rows) {
          std::copy_n(folded.data() + begin * columns, n * columns, rows);
        });
    const std::vector<float> keys = Project(input, end, layer.k, [&](int64_t begin, int64_t n, float* rows) {
      CopyEsaKeys(input, begin, begin + n, rows);
    });
    const auto k = static_cast<int64_t>(chosen.size());
    const std::size_t at_layer = static_cast<std::size_t>(input.layer);
    if (recall_.layers.size() <= at_layer) recall_.layers.resize(at_layer + 1);
    EsaRecall::Counts& counts = recall_.layers[at_layer];
    counts.found.resize(recall_.dims.size());
    counts.n_chosen += k;
    counts.by_chance +=
        static_cast<double>(k) * static_cast<double>(k) / static_cast<double>(end - options_.n_init);
    for (std::size_t at = 0; at < recall_.dims.size(); ++at) {
      FirstNumbers first;
      first.keys = keys.data();
      first.n_rows = n_rows;
      first.dim = recall_.dims[at];
      std::vector<float> rows(static_cast<std::size_t>(input.n_tokens * first.dim));
      for (int64_t c = 0; c < input.n_tokens; ++c) {
        std::copy_n(queries.data() + c * n_rows, first.dim, rows.data() + c * first.dim);
      }
      std::vector<int32_t> found(chosen.size());
      if (!choice_.Choose({.keys = &first,
                           .floats = first.dim,
                           .rows = rows.data(),
                           .n_queries = input.n_tokens,
                           .begin = options_.n_init,
                           .end = end,
                           .k = k,
                           .eps = options_.eps},
                          input.executor->kernels(), *input.pool, input.cancel, found.data())) {
        return;
      }
      for (const int32_t token : found) {
        counts.found[at] += std::binary_search(chosen.begin(), chosen.end(), token) ? 1 : 0;
      }
    }
  }

  Esa exact_;
  EsaOptions options_;
  std::shared_ptr<const EsaProjections> projections_;
  EsaRecall& recall_;
  mutable EsaChoice choice_;  // Extend is called from one thread
};

}  // namespace

EsaRecall::Counts EsaRecall::Total() const {
  Counts total{.found = std::vector<int64_t>(dims.size())};
  for (const Counts& layer : layers) {
    for (std::size_t i = 0; i < layer.found.size(); ++i) total.found[i] += layer.found[i];
    total.n_chosen += layer.n_chosen;
    total.by_chance += layer.by_chance;
  }
  return total;
}

LayerPolicies EsaRecallPolicies(const AttentionModel& model, const EsaOptions& options,
                                std::shared_ptr<const EsaProjections> projections, EsaRecall& recall) {
  return SameInEveryLayer(
      model, std::make_shared<RecallPolicy>(options, model.shape, std::move(projections), recall));
}

}  // namespace longheads
