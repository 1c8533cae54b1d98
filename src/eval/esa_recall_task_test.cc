#include "eval/esa_recall_task.h"

#include <gtest/gtest.h>

#include "engine/esa_compression.h"
#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"
#include "tests/support/cache_folder.h"

namespace longheads {
namespace {

class EsaRecallTaskTest : public testing::Test {
 protected:
  Haystack Text() const {
    std::string text;
    for (int i = 0; i < 900; ++i) text += std::to_string(i * 7919 % 1009) + " ";
    return Haystack::FromText("text", text);
  }

  const TestDirectory directory_;
  const CacheFolder cache_;
  const std::string model_ = TinyModelFile(directory_);
  const EngineOptions engine_{.model_path = model_, .compute = "f32", .threads = 1};
};

TEST_F(EsaRecallTaskTest, EveryLayerHasARecallAndTheMethodIsEsa) {
  EsaRecallTask task(Text(), {.from = 900, .to = 1200, .k = 50, .n_samples = 1});
  std::vector<TaskRecord> records;
  const TaskHooks hooks{.load = [this](const std::string& spec) { return LoadTiny(model_, spec); },
                        .engine_options = engine_};
  // Until it is fitted there is nothing to measure.
  const Status unfitted = RunTask({.attention = {"full"}}, task, hooks, records);
  const auto fitted = FitEsaCompression({.engine = engine_});
  const Status status = RunTask({.attention = {"full"}}, task, hooks, records);
  ASSERT_FALSE(unfitted);
  EXPECT_NE(unfitted.error().message.find("fit-esa"), std::string::npos) << unfitted.error().message;
  ASSERT_TRUE(fitted) << fitted.error().message;
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].failed, "");
  EXPECT_EQ(records[0].setup.attention, "esa");
  const Json& values = records[0].measured.values;
  EXPECT_TRUE(values.contains("layer_0") && values.contains("layer_1")) << values.dump();
  EXPECT_GT(records[0].measured.score, values.at("by_chance").get<double>());
  EXPECT_LE(records[0].measured.score, 1);
}

TEST_F(EsaRecallTaskTest, AnotherFitIsAnotherSample) {
  EsaRecallTask task(Text(), {.from = 900, .to = 1000, .k = 50, .n_samples = 1});
  int n_run = 0;
  const TaskHooks hooks{.load = [this](const std::string& spec) { return LoadTiny(model_, spec); },
                        .engine_options = engine_,
                        .on_sample = [&](const TaskRecord&, bool from_file,
                                         const TaskProgress&) { n_run += from_file ? 0 : 1; }};
  const auto measure = [&] {
    std::vector<TaskRecord> records;
    const Status status = RunTask({.attention = {}, .out_dir = directory_.File("out")}, task, hooks, records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  };
  ASSERT_TRUE(FitEsaCompression({.engine = engine_}));
  const std::vector<TaskRecord> first = measure();
  measure();
  EXPECT_EQ(n_run, 1);
  ASSERT_TRUE(FitEsaCompression({.engine = engine_, .dim = 16}));
  const std::vector<TaskRecord> other = measure();
  EXPECT_EQ(n_run, 2);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_NE(other[0].fingerprint, first[0].fingerprint);
  EXPECT_EQ(other[0].measured.values.at("dim"), 16);
}

}  // namespace
}  // namespace longheads
