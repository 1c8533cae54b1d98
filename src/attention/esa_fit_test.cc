// The closed-form fit against its twin's goldens (tools/reference/esa_fit.py), and what sums the moments
// while a model reads.
#include "attention/esa_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attention/esa_recall.h"
#include "attention/full.h"
#include "formats/npy.h"
#include "rope/frequencies.h"
#include "tests/support/layer_inputs.h"

namespace longheads {
namespace {

const std::string kFolder = LONGHEADS_GOLDENS "/esa-fit/";

const AttentionKernels& Fastest() {
  return *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
}

std::vector<float> Load(const std::string& name) {
  const Result<NpyArray> array = ReadNpy(kFolder + name);
  if (!array || array->As<float>() == nullptr) throw std::runtime_error("cannot read " + name);
  return *array->As<float>();
}

LayerInputs Inputs(const nlohmann::json& entry) {
  const HeadShape shape{
      .n_heads = entry.at("heads"), .n_kv_heads = entry.at("kv_heads"), .head_dim = entry.at("dim")};
  LayerInputs inputs = UniformInputs(shape, entry.at("n"), entry.at("seed"), {.q = 1, .k = 1, .v = 1});
  for (std::vector<float>* const values : {&inputs.q, &inputs.k}) {
    for (std::size_t i = 0; i < values->size(); ++i) {
      const auto x = static_cast<int64_t>(i) % shape.head_dim % (shape.head_dim / 2);
      (*values)[i] *= 1.0f / static_cast<float>(1 + x);
    }
  }
  return inputs;
}

// The moments of a text that a layer reads in uneven calls.
EsaMoments Calibrate(const LayerInputs& inputs, PairLayout layout, int64_t distance, double base,
                     std::vector<float>* out = nullptr) {
  const HeadShape& shape = inputs.shape;
  EsaLayerMoments sums;
  sums.layers.emplace_back(shape.n_kv_heads * shape.head_dim);
  const LayerPolicies policies =
      EsaCalibration({.shape = shape, .layout = layout, .trained = {}}, distance, sums);
  OneLayer layer({.policy = *policies[0],
                  .kernels = Fastest(),
                  .shape = shape,
                  .layout = layout,
                  .base = base,
                  .max_tokens = inputs.n});
  layer.Prefill(inputs, 7);
  layer.Prefill(inputs, inputs.n - 7);
  if (out != nullptr) *out = layer.out();
  return sums.layers[0];
}

TEST(EsaFit, EqualsTheTwin) {
  const auto manifest = nlohmann::json::parse(std::ifstream(kFolder + "manifest.json"));
  for (const auto& entry : manifest.at("cases")) {
    const std::string name = entry.at("name");
    SCOPED_TRACE(name);
    const LayerInputs inputs = Inputs(entry);
    const EsaMoments moments = Calibrate(inputs, PairLayout::kHalfSplit, entry.at("w"), entry.at("base"));
    EXPECT_EQ(moments.n_tokens, inputs.n);
    const int64_t rank = entry.at("rank");
    const EsaFit fit = FitEsa(moments, rank);
    const std::vector<float> product = Load(name + ".product.npy");
    const std::vector<float> singular = Load(name + ".singular.npy");
    // The moments are sums of float32's products: relative 2^-24 a rounding. The product turns by an error
    // over the gap between the singular values that are kept and those that are not, and what a direction of
    // little data gives is off by its inverse.
    const double gap = entry.at("gap");
    const std::size_t n = singular.size();
    ASSERT_EQ(fit.singular.size(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(fit.singular[i], singular[i], 1e-5 * singular[0]);
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t r = 0; r < static_cast<std::size_t>(rank); ++r) {
          sum += static_cast<double>(fit.projections.q[r * n + i]) * fit.projections.k[r * n + j];
        }
        worst = std::max(worst, std::abs(sum - product[i * n + j]));
        largest = std::max(largest, std::abs(static_cast<double>(product[i * n + j])));
      }
    }
    EXPECT_LE(worst, 1e-4 * largest / gap);
    const double error = entry.at("error");
    EXPECT_NEAR(EsaSquaredError(fit.projections, moments), error, 1e-4 * error + 1e-7);
  }
}

TEST(EsaFit, FirstRowsAreTheFitOfFewerRows) {
  const LayerInputs inputs = UniformInputs({.n_heads = 4, .n_kv_heads = 2, .head_dim = 16}, 200, 3);
  const EsaMoments moments = Calibrate(inputs, PairLayout::kInterleaved, 20, 10000);
  const EsaFit all = FitEsa(moments, 32);
  const EsaFit some = FitEsa(moments, 5);
  EXPECT_TRUE(std::equal(some.projections.q.begin(), some.projections.q.end(), all.projections.q.begin()));
  EXPECT_TRUE(std::equal(some.projections.k.begin(), some.projections.k.end(), all.projections.k.begin()));
  // All rows lose nothing; fewer lose more.
  EXPECT_LE(EsaSquaredError(all.projections, moments), 1e-9);
  EXPECT_GT(EsaSquaredError(some.projections, moments),
            EsaSquaredError(FitEsa(moments, 10).projections, moments));
}

TEST(EsaCalibration, AttendsAsFullAttentionDoes) {
  const LayerInputs inputs = UniformInputs({.n_heads = 4, .n_kv_heads = 2, .head_dim = 64}, 70, 3);
  std::vector<float> out;
  Calibrate(inputs, PairLayout::kHalfSplit, 10, 10000, &out);
  const FullAttention full(inputs.shape, inputs.n);
  OneLayer expected({.policy = full, .kernels = Fastest(), .shape = inputs.shape, .max_tokens = inputs.n});
  expected.Prefill(inputs, inputs.n);
  const double bound = 2 * BoundOf(inputs, /*max_logit=*/12).out;  // both sides round
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected.out()[i], bound);
}

TEST(EsaRecall, IsWholeWhereNothingIsCompressedAndLessWhereMuchIs) {
  const HeadShape shape{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64};
  const LayerInputs inputs = UniformInputs(shape, 200, 3);
  const EsaMoments moments = Calibrate(inputs, PairLayout::kHalfSplit, 20, 10000);
  const auto projections = std::make_shared<EsaProjections>(EsaProjections{
      .distance = 20, .n_rows = 128, .n_columns = 128, .layers = {FitEsa(moments, 128).projections}});
  EsaRecall recall{.dims = {1, 16, 128}};
  const EsaOptions options{
      .n_init = 4, .k = 20, .n_local = 20, .chunk = 16, .score = EsaOptions::Score::kExact};
  const LayerPolicies policies =
      EsaRecallPolicies({.shape = shape, .trained = {}}, options, projections, recall);
  OneLayer layer({.policy = *policies[0], .kernels = Fastest(), .shape = shape, .max_tokens = 200});
  layer.Prefill(inputs, 200);
  // Chunks begin at 16, 32 ...; from 48 on more than k tokens compete.
  const EsaRecall::Counts total = recall.Total();
  EXPECT_EQ(total.n_chosen, 20 * 10);
  EXPECT_GE(total.found[2], 199);  // a rounding may turn a tie
  EXPECT_LT(total.found[0], total.found[1]);
  EXPECT_LT(total.found[1], total.found[2]);
  EXPECT_GT(total.by_chance, 0);
  EXPECT_LT(total.by_chance, static_cast<double>(total.n_chosen));
}

}  // namespace
}  // namespace longheads
