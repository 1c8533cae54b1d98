#include "bench/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

class SweepTest : public testing::Test {
 protected:
  SweepHooks Hooks() {
    return {.load =
                [this](const std::string& attention) {
                  return Engine::Load(
                      {.model_path = file_.path(), .attention = attention, .compute = "f32", .threads = 1});
                },
            .cancel = &cancel_};
  }

  ModelFile file_{TinyLlama({.context_length = 512})};
  CancelToken cancel_;
};

TEST_F(SweepTest, MeasuresEveryMethodAtEveryLength) {
  std::vector<SweepRow> rows;
  const SweepOptions options = {
      .attention = {"full", "streaming-llm"}, .lengths = {200, 20}, .n_decode = 4, .repeats = 3};
  ASSERT_TRUE(RunSweep(options, Hooks(), rows));
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].attention, i < 2 ? "full" : "streaming-llm");
    EXPECT_EQ(rows[i].length, i % 2 == 0 ? 20 : 200);
    EXPECT_EQ(rows[i].prefill.n, 3);
    EXPECT_EQ(rows[i].decode.n, 3 * 4);
    EXPECT_GT(rows[i].prefill.low, 0);
    EXPECT_GT(rows[i].decode.low, 0);
    EXPECT_GT(rows[i].peak_memory, 0u);
  }
  // 20 tokens of full attention: 2 layers of width 64, 4 query and 2 key/value heads of 16, feed-forward 96,
  // a vocabulary of 272, all in float32. Generated tokens are the 21st to the 24th.
  const double layers = 2 * (2 * 64 * (4 + 2) * 16 + 3 * 64 * 96), vocabulary = 64 * 272;
  EXPECT_EQ(rows[0].prefill_cost.weights, 2 * (20 * layers + vocabulary));
  EXPECT_EQ(rows[0].prefill_cost.attention, 4 * 16 * 4 * 2 * (20 * 21 / 2));
  EXPECT_EQ(rows[0].prefill_cost.choosing, 0);
  EXPECT_EQ(rows[0].decode_bytes, 4 * (layers + vocabulary) + 2 * 22.5 * 2 * (2 * 16 * 4));
}

TEST_F(SweepTest, SaysWhatCameFromDisk) {
  SweepHooks hooks = Hooks();
  hooks.load = [this](const std::string& attention) {
    return Engine::Load(
        {.model_path = file_.path(),
         .attention = attention,
         .compute = "f32",
         .kv_ram = 64 * 32768,  // the least: a page has 256 tokens of keys and values of 16 floats
         .kv_disk = testing::TempDir(),
         .threads = 1});
  };
  std::vector<SweepRow> rows;
  ASSERT_TRUE(RunSweep({.attention = {"full"}, .lengths = {6000}, .n_decode = 4, .repeats = 1}, hooks, rows));
  const SweepRow& row = rows[0];
  // A token reads each of the text's pages once: 24 of 2 layers' 2 heads, and 4 at a time fit once more.
  EXPECT_GT(row.prefill_traffic.bytes_written, 0u);
  EXPECT_GE(row.decode_traffic.hits + row.decode_traffic.misses, 4u * 4 * 24);
  EXPECT_GT(row.decode_traffic.bytes_read, 0u);
  const MachineLimits limits = {.read = {.median = 1e9, .n = 1}, .f32 = {.median = 1e9, .n = 1}};
  EXPECT_NE(SweepTable(rows, limits).find("came from disk"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(SweepJson(rows, limits, {}));
  EXPECT_LT(json["rows"][0]["decode_traffic"]["hit_rate"], 1);
}

TEST_F(SweepTest, GoesOnBesideAnEngineWithEverythingInMemory) {
  SweepHooks hooks = Hooks();
  hooks.load_in_memory = hooks.load;
  hooks.load = [this](const std::string& attention) {
    return Engine::Load({.model_path = file_.path(),
                         .attention = attention,
                         .compute = "f32",
                         .kv_ram = 64 * 32768,
                         .kv_disk = testing::TempDir(),
                         .threads = 1});
  };
  std::vector<std::string> worked;
  hooks.on_work = [&worked](const std::string& name, int64_t) {
    worked.push_back(name);
    return [](double) {};
  };
  std::vector<SweepRow> rows;
  // Turns of eight, and one that is shorter.
  SweepOptions options = {
      .attention = {"full"}, .lengths = {6000}, .n_decode = 19, .repeats = 2, .beside_memory = true};
  ASSERT_TRUE(RunSweep(options, hooks, rows));
  EXPECT_EQ(worked, (std::vector<std::string>{"full in memory", "full", "full in memory", "full"}));
  EXPECT_EQ(rows[0].prefill.n, 2);
  EXPECT_EQ(rows[0].decode.n, 38);
  EXPECT_EQ(rows[0].decode_in_memory.n, 38);
  EXPECT_GT(rows[0].decode_traffic.bytes_read, 0u);
  EXPECT_EQ(TimeToMemory(rows[0]), rows[0].decode.mean / rows[0].decode_in_memory.mean);
  // Of a text, whose own tokens both are given.
  options.text = "to be";
  for (int i = 0; i < 11; ++i) options.text += " or not " + options.text;
  ASSERT_TRUE(RunSweep(options, hooks, rows));
  EXPECT_EQ(rows[1].decode_in_memory.n, 38);

  options = {.attention = {"full"}, .lengths = {kMostTokens / 2}, .beside_memory = true};
  Status status = CheckSweep(options, hooks);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--beside-memory"), std::string::npos) << status.error().message;
  options.n_decode = 0;
  status = CheckSweep(options, hooks);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--beside-memory"), std::string::npos);
}

TEST_F(SweepTest, ReadsPiecesOfAText) {
  std::vector<SweepRow> rows;
  SweepOptions options = {
      .attention = {"full"}, .lengths = {20}, .n_decode = 4, .repeats = 2, .text = "to be"};
  const Status status = RunSweep(options, Hooks(), rows);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--text"), std::string::npos);
  for (int i = 0; i < 6; ++i) options.text += " or not " + options.text;
  ASSERT_TRUE(RunSweep(options, Hooks(), rows));
  EXPECT_EQ(rows[0].decode.n, 8);
}

TEST_F(SweepTest, DoesWithoutGenerating) {
  std::vector<SweepRow> rows;
  ASSERT_TRUE(RunSweep({.attention = {"full"}, .lengths = {20}, .n_decode = 0, .repeats = 1}, Hooks(), rows));
  EXPECT_EQ(rows[0].decode.n, 0);
  EXPECT_EQ(DecodeShare(rows[0], {}), 0);
}

TEST_F(SweepTest, RefusesWhatItCannotMeasure) {
  std::vector<SweepRow> rows;
  EXPECT_FALSE(RunSweep({.attention = {"full"}, .lengths = {}}, Hooks(), rows));
  EXPECT_FALSE(RunSweep({.attention = {"full"}, .lengths = {0}}, Hooks(), rows));
  EXPECT_FALSE(RunSweep({.attention = {"full"}, .lengths = {20}, .repeats = 0}, Hooks(), rows));
  EXPECT_FALSE(RunSweep({.attention = {"full"}, .lengths = {20}, .n_decode = -1}, Hooks(), rows));
  EXPECT_FALSE(RunSweep({.attention = {"nothing"}, .lengths = {20}}, Hooks(), rows));
  EXPECT_TRUE(rows.empty());
}

TEST_F(SweepTest, ReadsAPromptBeforeItMeasures) {
  std::vector<SweepRow> rows;
  SweepHooks hooks = Hooks();
  const Engine* engine = nullptr;
  hooks.on_method = [&engine](const Engine& loaded, const std::string&) { engine = &loaded; };
  double pairs = 0;
  hooks.on_row = [&](const SweepRow&) { pairs = engine->attention_counts().pairs; };
  ASSERT_TRUE(RunSweep({.attention = {"full"}, .lengths = {20}, .repeats = 2}, hooks, rows));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(pairs, 3 * (20 * 21 / 2) * 2 * 4);  // three prompts, 2 layers of 4 heads
}

TEST_F(SweepTest, KeepsWhatWasDoneBeforeAnInterrupt) {
  std::vector<SweepRow> rows;
  SweepHooks hooks = Hooks();
  hooks.on_row = [this](const SweepRow&) { cancel_.Cancel(); };
  const Status status = RunSweep({.attention = {"full"}, .lengths = {20, 30}, .repeats = 1}, hooks, rows);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(rows.size(), 1u);
}

// A machine of one operation and one byte a second.
TEST(SweepShares, AreTheLeastTimeInTheTimeTaken) {
  const Measured one = {.median = 1, .low = 1, .high = 1, .n = 1, .mean = 1};
  const Measured four = {.median = 4, .low = 4, .high = 4, .n = 1, .mean = 4};
  const MachineLimits limits = {.threads = 1, .read = one, .f32 = one, .bf16 = {}, .int8 = four};
  SweepRow row{.attention = "full", .length = 10, .compute = ComputeType::kInt8};
  row.prefill = {.median = 100, .low = 100, .high = 100, .n = 1, .mean = 100};
  row.decode = {.median = 8, .low = 8, .high = 8, .n = 1, .mean = 8};
  row.prefill_cost = {.weights = 40, .attention = 20, .choosing = 5};
  row.decode_bytes = 2;
  EXPECT_DOUBLE_EQ(PrefillShare(row, limits), (40.0 / 4 + 25) / 100);
  EXPECT_DOUBLE_EQ(DecodeShare(row, limits), 0.25);
  row.compute = ComputeType::kBF16;  // this machine has no instructions for it
  EXPECT_DOUBLE_EQ(PrefillShare(row, limits), 0.65);
  MachineLimits with_bf16 = limits;
  with_bf16.bf16 = four;
  row.in_bf16 = 0.5;
  EXPECT_DOUBLE_EQ(PrefillShare(row, with_bf16), (40.0 / 4 + 10.0 / 4 + 10 + 5) / 100);
  row.in_bf16 = 0;
  EXPECT_DOUBLE_EQ(Bf16PeakShare(row, with_bf16), 60.0 / 4 / 100);
  EXPECT_EQ(Bf16PeakShare(row, limits), 0);
  EXPECT_NE(SweepCsv({row}, with_bf16, {.model = "m"}).find(",60,0.1500,"), std::string::npos);
  EXPECT_NE(SweepCsv({row}, limits, {.model = "m"}).find(",60,,"), std::string::npos);

  const nlohmann::json json = nlohmann::json::parse(SweepJson({row}, limits, {.model = "model.gguf"}));
  EXPECT_EQ(json["rows"][0]["attn"], "full");
  EXPECT_DOUBLE_EQ(json["rows"][0]["prefill"]["median"], 0.1);
  EXPECT_DOUBLE_EQ(json["rows"][0]["decode_share"], 0.25);
  const std::string csv = SweepCsv({row}, limits, {.model = "a \"model\".gguf"});
  EXPECT_NE(csv.find("full,10,bf16,f32,1,0.10,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"a \"\"model\"\".gguf\""), std::string::npos) << csv;
  EXPECT_NE(SweepTable({row}, limits).find("65%"), std::string::npos);
  EXPECT_NE(csv.find(",,,,,,,,,,,,,,,\n"), std::string::npos) << csv;  // nothing went to disk
}

TEST(SweepTraffic, IsInTableAndFiles) {
  const Measured one = {.median = 1, .low = 1, .high = 1, .n = 1, .mean = 1};
  const MachineLimits limits = {.threads = 1, .read = one, .f32 = one, .bf16 = {}, .int8 = {}, .disk = one};
  SweepRow row{.attention = "full", .length = 10, .compute = ComputeType::kF32};
  row.prefill = row.decode = one;
  row.prefill.n = 2;
  row.decode_in_memory = {.median = 0.5, .low = 0.5, .high = 0.5, .n = 1, .mean = 2};
  row.prefill_traffic = {.hits = 1, .bytes_read = 200, .bytes_written = 80, .waited_seconds = 3};  // of both
  row.decode_traffic = {.hits = 3,
                        .misses = 1,
                        .packed = 2,
                        .planned = 16,
                        .planned_in_memory = 4,
                        .read_ahead = 8,
                        .read_ahead_used = 6,
                        .foreseen = 5,
                        .foreseen_used = 2,
                        .bytes_read = 64,
                        .waited_seconds = 0.25};
  const std::string csv = SweepCsv({row}, limits, {.model = "model.gguf"});
  EXPECT_NE(csv.find(",1,0.7500,16,4,64,8,6,5,2,2,0.2500,100,40,1.5000,2.00,0.5000\n"), std::string::npos)
      << csv;
  const std::string header = csv.substr(0, csv.find('\n'));
  EXPECT_TRUE(
      header.ends_with("disk,hit_rate,planned,planned_in_memory,disk_bytes,read_ahead,read_ahead_used,"
                       "foreseen,foreseen_used,packed,waited,read_a_prompt,written_a_prompt,waited_a_prompt,"
                       "decode_in_memory,time_to_memory"));
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), std::count(csv.begin(), csv.end(), ',') / 2);
  const nlohmann::json json = nlohmann::json::parse(SweepJson({row}, limits, {.model = "model.gguf"}));
  EXPECT_EQ(json["rows"][0]["decode_traffic"]["foreseen_used"], 2);
  EXPECT_EQ(json["rows"][0]["decode_traffic"]["packed_rate"], 0.5);
  EXPECT_EQ(json["rows"][0]["decode_traffic"]["planned_in_memory"], 4);
  EXPECT_EQ(json["rows"][0]["prefill_traffic"], nlohmann::json({{"disk_bytes_read_a_prompt", 100},
                                                                {"disk_bytes_written_a_prompt", 40},
                                                                {"waited_seconds_a_prompt", 1.5}}));
  EXPECT_EQ(json["rows"][0]["time_to_memory"], 0.5);
  EXPECT_EQ(json["rows"][0]["decode_in_memory"]["median"], 2);
  EXPECT_NE(SweepTable({row}, limits)
                .find("full, 10 tokens: a token takes 0.50 times what it takes with everything in memory"),
            std::string::npos);
  EXPECT_NE(SweepTable({row}, limits)
                .find("75.0% of readings of a page found it in memory, 50.0% packed, 25.0% of 16 pages"),
            std::string::npos);
}

}  // namespace
}  // namespace longheads
