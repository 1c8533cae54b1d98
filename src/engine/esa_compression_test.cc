// Compressions of ESA's scores as files: found again by the model they were fitted to and by no other,
// refused where they are damaged; and the whole way from a model without one to an answer.
#include "engine/esa_compression.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/cache_folder.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

class EsaCompressionTest : public testing::Test {
 protected:
  CacheFolder cache_;
};

EsaProjections Some() {
  EsaProjections projections{.distance = 40, .n_rows = 2, .n_columns = 3, .layers = {}};
  for (int layer = 0; layer < 2; ++layer) {
    EsaProjections::Layer& to = projections.layers.emplace_back();
    for (int i = 0; i < 6; ++i) {
      to.q.push_back(static_cast<float>(100 * layer + i));
      to.k.push_back(static_cast<float>(100 * layer - i));
    }
  }
  return projections;
}

TEST_F(EsaCompressionTest, ComesBackAsItWasSaved) {
  const std::string path = EsaCompressionPath(7, 40);
  ASSERT_EQ(std::filesystem::path(path).parent_path(), cache_.path() / "longheads");
  ASSERT_TRUE(SaveEsaProjections(path, 7, Some()));
  const auto loaded = LoadEsaProjections(path, 7, 40, 3, 2);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->n_rows, 2);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ((*loaded)->layers[layer].q, Some().layers[layer].q);
    EXPECT_EQ((*loaded)->layers[layer].k, Some().layers[layer].k);
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(EsaCompressionTest, RefusesWhatIsNotTheModelsOrDamaged) {
  const std::string path = EsaCompressionPath(7, 40);
  ASSERT_TRUE(SaveEsaProjections(path, 7, Some()));
  EXPECT_FALSE(LoadEsaProjections(path, 8, 40, 3, 2));
  EXPECT_FALSE(LoadEsaProjections(path, 7, 41, 3, 2));
  EXPECT_FALSE(LoadEsaProjections(path, 7, 40, 4, 2));
  EXPECT_FALSE(LoadEsaProjections(path, 7, 40, 3, 3));
  EXPECT_FALSE(LoadEsaProjections(path + "x", 7, 40, 3, 2));
  const auto size = std::filesystem::file_size(path);
  for (std::uintmax_t at = 0; at < size; ++at) {  // any byte that changes
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
    file.flush();
    EXPECT_FALSE(LoadEsaProjections(path, 7, 40, 3, 2)) << at;
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte));
  }
  EXPECT_TRUE(LoadEsaProjections(path, 7, 40, 3, 2));
  for (const std::uintmax_t length : {size - 1, size / 2, std::uintmax_t{10}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, length);
    const auto loaded = LoadEsaProjections(path, 7, 40, 3, 2);
    ASSERT_FALSE(loaded) << length;
    EXPECT_NE(loaded.error().message.find("fit-esa"), std::string::npos);
  }
}

TEST_F(EsaCompressionTest, AFolderThatCannotBeWrittenIsAnErrorWithItsName) {
  std::filesystem::create_directories(cache_.path());
  std::ofstream(cache_.path() / "longheads") << "a file where the folder should be";
  const std::string path = EsaCompressionPath(7, 40);
  const Status saved = SaveEsaProjections(path, 7, Some());
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().message.find(path), std::string::npos);
}

// A window of 256: n_local = 128, k = 64, chunk = 16, n_init = 4.
TEST_F(EsaCompressionTest, IsFittedOnceAndThenFound) {
  const ModelFile model(TinyLlama({.context_length = 256, .seed = 3}));
  const EngineOptions engine{.model_path = model.path(), .attention = "esa", .compute = "f32", .threads = 1};
  const Result<std::unique_ptr<Engine>> before = Engine::Load(engine);
  ASSERT_FALSE(before);
  for (const char* const part : {"longheads fit-esa -m ", "score=exact", "n_local=128", "--attn esa"}) {
    EXPECT_NE(before.error().message.find(part), std::string::npos) << before.error().message;
  }

  const Result<EsaFitReport> report = FitEsaCompression({.engine = engine});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->n_local, 128);
  EXPECT_EQ(report->dim, 32);
  EXPECT_GT(report->n_tokens, 1000);
  EXPECT_LT(report->errors.back().share, 1e-6);
  EXPECT_GT(report->errors.front().share, report->errors.back().share);

  const auto answer = [&](const std::string& attention) {
    EngineOptions options = engine;
    options.attention = attention;
    const Result<std::unique_ptr<Engine>> loaded = Engine::Load(options);
    EXPECT_TRUE(loaded) << loaded.error().message;
    Session session = (*loaded)->NewSession();
    std::vector<TokenId> tokens;
    for (int i = 0; i < 600; ++i) tokens.push_back(i * i % 251);
    auto hidden = (*loaded)->Prefill(session, tokens, Outputs::kLast, {});
    EXPECT_TRUE(hidden) << hidden.error().message;
    return (*loaded)->Logits(*hidden);
  };
  // Nothing is lost in all dimensions, and something in few.
  const std::vector<float> exact = answer("esa,score=exact");
  const std::vector<float> all = answer("esa,dim=32");
  const std::vector<float> few = answer("esa,dim=1");
  double to_all = 0, to_few = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    to_all = std::max(to_all, std::abs(static_cast<double>(all[i]) - exact[i]));
    to_few = std::max(to_few, std::abs(static_cast<double>(few[i]) - exact[i]));
  }
  EXPECT_GT(to_few, 0);
  EXPECT_LT(to_all, to_few);

  // It is for this n_local alone, and the message says how to have another.
  EngineOptions other = engine;
  other.attention = "esa,n_local=100";
  const Result<std::unique_ptr<Engine>> refused = Engine::Load(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--n-local 100"), std::string::npos) << refused.error().message;
}

// Results are of the numbers that they were scored by: another fit has another name, and methods without one
// have none.
TEST_F(EsaCompressionTest, HasANameThatChangesWithTheFit) {
  const ModelFile model(TinyLlama({.context_length = 256, .seed = 3}));
  const EngineOptions engine{.model_path = model.path(), .compute = "f32", .threads = 1};
  const auto name = [&](const std::string& attention) {
    EngineOptions options = engine;
    options.attention = attention;
    const Result<std::unique_ptr<Engine>> loaded = Engine::Load(options);
    if (!loaded) return loaded.error().message;
    const Result<std::string> compression = EsaCompressionOf(**loaded);
    return compression ? *compression : compression.error().message;
  };
  ASSERT_TRUE(FitEsaCompression({.engine = engine}));
  const std::string first = name("esa");
  EXPECT_EQ(first.size(), 16u) << first;
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos) << first;
  EXPECT_EQ(name("esa,dim=1"), first);
  EXPECT_EQ(name("yarn:factor=2+esa"), first);
  for (const char* const without : {"full", "longheads,chunk=16,window=128", "esa,score=exact"}) {
    EXPECT_EQ(name(without), "") << without;
  }
  ASSERT_TRUE(FitEsaCompression({.engine = engine, .n_local = 100}));
  EXPECT_EQ(name("esa"), first);
  const std::string other_distance = name("esa,n_local=100");
  EXPECT_EQ(other_distance.size(), 16u) << other_distance;
  EXPECT_NE(other_distance, first);
  ASSERT_TRUE(FitEsaCompression({.engine = engine, .dim = 16}));
  const std::string smaller = name("esa");
  EXPECT_EQ(smaller.size(), 16u) << smaller;
  EXPECT_NE(smaller, first);
  ASSERT_TRUE(FitEsaCompression({.engine = engine}));
  EXPECT_EQ(name("esa"), first);
}

TEST_F(EsaCompressionTest, RecallIsWholeWhereNothingIsCompressed) {
  const ModelFile model(TinyLlama({.context_length = 256, .seed = 3}));
  EsaFitOptions options{.engine = {.model_path = model.path(), .compute = "f32", .threads = 1}};
  ASSERT_TRUE(FitEsaCompression(options));
  EsaRecallOptions asked{.engine = options.engine, .text = "some "};
  const Result<EsaRecallReport> too_short = MeasureEsaRecall(asked);
  ASSERT_FALSE(too_short);
  EXPECT_NE(too_short.error().message.find("use a longer one"), std::string::npos);
  for (int i = 0; i < 60; ++i) asked.text += "words " + std::to_string(i * i);
  const Result<EsaRecallReport> recall = MeasureEsaRecall(asked);
  ASSERT_TRUE(recall) << recall.error().message;
  EXPECT_EQ(recall->found.back().dim, 32);
  EXPECT_GT(recall->found.back().share, 0.98);  // equal scores but for roundings
  EXPECT_GT(recall->found.back().share, recall->found.front().share);
  EXPECT_GT(recall->found.front().share, 0);
  EXPECT_LT(recall->by_chance, 1);
  // Every layer by itself; and of the last queries alone.
  ASSERT_GT(recall->layers.size(), 1u);
  for (const std::vector<double>& layer : recall->layers) {
    ASSERT_EQ(layer.size(), recall->found.size());
    EXPECT_GT(layer.back(), 0.95);
  }
  asked.from = recall->n_tokens - 20;
  const Result<EsaRecallReport> last = MeasureEsaRecall(asked);
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_NE(last->by_chance, recall->by_chance);
  asked.from = recall->n_tokens;
  EXPECT_FALSE(MeasureEsaRecall(asked));
}

TEST_F(EsaCompressionTest, RefusesWhatCannotBeFitted) {
  const ModelFile model(TinyLlama({.context_length = 256}));
  const auto message = [&](EsaFitOptions options) {
    options.engine = {.model_path = model.path(), .compute = "f32", .threads = 1};
    const Result<EsaFitReport> report = FitEsaCompression(options);
    return report ? "fitted" : report.error().message;
  };
  EXPECT_NE(message({.text = "short"}).find("has 5 tokens"), std::string::npos);
  EXPECT_NE(message({.n_local = 256}).find("--n-local 256"), std::string::npos);
  EXPECT_NE(message({.dim = 33}).find("--dim 33"), std::string::npos);
  CancelToken cancel;
  cancel.Cancel();
  EXPECT_EQ(message({.cancel = &cancel}), "stopped");
  EXPECT_FALSE(std::filesystem::exists(cache_.path()));
}

}  // namespace
}  // namespace longheads
