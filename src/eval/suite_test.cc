#include "eval/suite.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

const SuiteExtras kExtras = {{"passkey", {{"lengths", "N", "", ""}, {"depths", "N", "", ""}}},
                             {"ppl", {{"text", "FILE", "", ""}}}};

TEST(Suite, ReadsModelsMethodsTasksAndLengths) {
  const auto suite = ParseSuite(R"({
    "models": ["a.gguf", {"file": "b.gguf", "compute": "f32", "kv-type": "bf16"}],
    "methods": ["full", "longheads,chunk=128; esa"],
    "lengths": ["4k", 8192],
    "tasks": ["passkey", {"task": "ppl", "text": "t.txt"},
              {"task": "needle", "depths": 3, "lengths": 2048, "methods": ["full"], "form": "plain"}],
    "out": "results"})",
                                "s.json", kExtras);
  ASSERT_TRUE(suite) << suite.error().message;
  EXPECT_EQ(suite->out_dir, "results");
  ASSERT_EQ(suite->models.size(), 2u);
  EXPECT_EQ(suite->models[0].file, "a.gguf");
  EXPECT_EQ(suite->models[0].compute, "auto");
  EXPECT_EQ(suite->models[1].kv_type, "bf16");
  ASSERT_EQ(suite->tasks.size(), 3u);
  EXPECT_EQ(suite->tasks[0].options.at("lengths"), "4k,8192");
  EXPECT_EQ(suite->tasks[0].attention, (std::vector<std::string>{"full", "longheads,chunk=128", "esa"}));
  EXPECT_FALSE(suite->tasks[1].options.contains("lengths"));
  EXPECT_EQ(suite->tasks[2].options.at("lengths"), "2048");
  EXPECT_EQ(suite->tasks[2].options.at("depths"), "3");
  EXPECT_EQ(suite->tasks[2].attention, std::vector<std::string>{"full"});
  EXPECT_EQ(suite->tasks[2].form, "plain");
}

TEST(Suite, StandsForTheDefaultModelAndMethods) {
  const auto suite = ParseSuite(R"({"tasks": ["needle"]})", "s.json", kExtras);
  ASSERT_TRUE(suite) << suite.error().message;
  ASSERT_EQ(suite->models.size(), 1u);
  EXPECT_EQ(suite->models[0].file, "");
  EXPECT_EQ(suite->tasks[0].attention, (std::vector<std::string>{"full", "auto"}));
  EXPECT_TRUE(suite->tasks[0].options.empty());
}

TEST(Suite, ListsAreGivenAsEachOptionTakesThem) {
  const auto suite = ParseSuite(R"({"tasks": [
    {"task": "needle", "needle": "n", "question": "q", "expect": ["blue, cold", "stone"], "lengths": [600, "4k"]},
    {"task": "ruler", "tasks": ["niah_single_1", "niah_multikey_2"]}]})",
                                "s.json", kExtras);
  ASSERT_TRUE(suite) << suite.error().message;
  EXPECT_EQ(suite->tasks[0].options.at("expect"), "blue, cold;stone");
  EXPECT_EQ(suite->tasks[0].options.at("lengths"), "600,4k");
  EXPECT_EQ(suite->tasks[1].options.at("tasks"), "niah_single_1,niah_multikey_2");
}

TEST(Suite, ModelsSayWhereKeysLieAndHowPositionsTurn) {
  const auto suite = ParseSuite(R"({
    "models": [{"kv-ram": "64m", "kv-disk": "/tmp", "kv-disk-max": "2g", "kv-blocks": 8},
               {"rope-scaling": "yarn", "rope-scale": 4, "yarn-orig-ctx": "2k", "yarn-beta-fast": 16.5}],
    "tasks": ["needle"]})",
                                "s.json", kExtras);
  ASSERT_TRUE(suite) << suite.error().message;
  EXPECT_EQ(suite->models[0].kv_ram, "64m");
  EXPECT_EQ(suite->models[0].kv_disk, "/tmp");
  EXPECT_EQ(suite->models[0].kv_disk_max, "2g");
  EXPECT_EQ(suite->models[0].kv_blocks, 8);
  EXPECT_EQ(suite->models[1].kv_blocks, 0);
  EXPECT_EQ(suite->models[0].rope.Text(), "");
  EXPECT_EQ(suite->models[1].rope.Text(),
            "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 2048 --yarn-beta-fast 16.5");
}

TEST(Suite, AnAblationIsItsTaskOnEveryVariant) {
  const auto suite = ParseSuite(R"({"lengths": ["8k"], "tasks": [
    {"task": "ablation", "of": {"task": "ruler", "tasks": "niah_single_1", "form": "plain"}},
    {"task": "ablation", "of": "needle", "chunk": 128, "window": "2k", "base": ""}]})",
                                "s.json", kExtras);
  ASSERT_TRUE(suite) << suite.error().message;
  const SuiteTask& task = suite->tasks[0];
  EXPECT_EQ(task.name, "ruler");
  EXPECT_EQ(task.form, "plain");
  EXPECT_EQ(task.options.at("tasks"), "niah_single_1");
  EXPECT_EQ(task.options.at("lengths"), "8k");
  ASSERT_EQ(task.variants.size(), 12u);
  ASSERT_EQ(task.attention.size(), 12u);
  EXPECT_EQ(task.attention[0], "longheads,chunk=256,window=4096,begin=window");
  EXPECT_EQ(task.variants[3].attention, task.attention[3]);
  EXPECT_EQ(suite->tasks[1].attention[0], "longheads,chunk=128,window=2048");
}

TEST(Suite, RefusesByTheKey) {
  const auto refused = [](const std::string& json, const std::string& words) {
    const auto suite = ParseSuite(json, "s.json", kExtras);
    ASSERT_FALSE(suite) << json;
    EXPECT_EQ(suite.error().kind, ErrorKind::kInvalidInput);
    EXPECT_TRUE(suite.error().message.starts_with("s.json")) << suite.error().message;
    EXPECT_NE(suite.error().message.find(words), std::string::npos) << suite.error().message;
  };
  refused("{", "no JSON");
  refused("", "no JSON");
  refused("[1]", "no JSON object");
  refused("{}", "'tasks'");
  refused(R"({"tasks": []})", "'tasks'");
  refused(R"({"tasks": ["needles"]})", "'tasks[0].task' is 'needles', but the tasks are passkey, ppl, ");
  refused(R"({"tasks": [7]})", "'tasks[0]'");
  refused(R"({"tasks": [{"depths": 3}]})", "'tasks[0]'");
  refused(R"({"tasks": ["needle", {"task": "needle", "depth": 3}]})", "'tasks[1].depth' is no key here");
  refused(R"({"tasks": [{"task": "needle", "depths": {}}]})", "'tasks[0].depths'");
  refused(R"({"tasks": [{"task": "needle", "depths": null}]})", "'tasks[0].depths'");
  refused(R"({"tasks": [{"task": "needle", "lengths": [[1]]}]})", "'tasks[0].lengths[0]'");
  refused(R"({"tasks": [{"task": "needle", "form": "poem"}]})", "'tasks[0].form'");
  refused(R"({"tasks": ["needle"], "method": ["full"]})", "'method' is no key here");
  refused(R"({"tasks": ["needle"], "methods": "full"})", "'methods'");
  refused(R"({"tasks": ["needle"], "methods": [1]})", "'methods[0]'");
  refused(R"({"tasks": ["needle"], "models": []})", "'models'");
  refused(R"({"tasks": ["needle"], "models": [{"name": "a"}]})", "'models[0].name'");
  refused(R"({"tasks": ["needle"], "models": [{"compute": 8}]})", "'models[0].compute'");
  refused(R"({"tasks": ["needle"], "out": 1})", "'out'");
  refused(R"({"tasks": [{"task": "needle", "depths": [1, 2]}]})", "'tasks[0].depths' is a list");
  refused(R"({"tasks": [{"task": "needle", "needle": ["a"]}]})", "'tasks[0].needle' is a list");
  refused(R"({"tasks": [{"task": "needle", "expect": ["a;b", "c"]}]})", "'tasks[0].expect[0]' has a ';'");
  refused(R"({"tasks": [{"task": "needle", "expect": ["a", ""]}]})", "'tasks[0].expect[1]'");
  refused(R"({"tasks": ["needle"], "tasks": ["ppl"]})", "'tasks' stands twice");
  refused(R"({"tasks": [{"task": "needle", "depths": 3, "depths": 5}]})", "'depths' stands twice");
  refused(R"({"tasks": ["needle"], "models": [{"kv-ram": 64}]})", "'models[0].kv-ram'");
  refused(R"({"tasks": ["needle"], "models": [{"kv-blocks": "few"}]})", "'models[0].kv-blocks'");
  refused(R"({"tasks": ["needle"], "models": [{"rope-scale": "4"}]})", "'models[0].rope-scale'");
  refused(R"({"tasks": ["needle"], "models": [{"yarn-orig-ctx": "far"}]})", "'models[0].yarn-orig-ctx'");
}

TEST(Suite, RefusesMethodsThatNoModelCanHave) {
  const auto refused = [](const std::string& json, const std::string& place, const std::string& words) {
    const auto suite = ParseSuite(json, "s.json", kExtras);
    ASSERT_FALSE(suite) << json;
    EXPECT_NE(suite.error().message.find(place), std::string::npos) << suite.error().message;
    EXPECT_NE(suite.error().message.find(words), std::string::npos) << suite.error().message;
  };
  refused(R"({"tasks": ["needle"], "methods": ["full", "longhead"]})", "'methods[1]'", "longheads");
  refused(R"({"tasks": ["needle", {"task": "ppl", "methods": ["fill"]}]})", "'tasks[1].methods[0]'", "full");
  refused(R"({"tasks": ["needle"], "methods": ["full;longheads,chunks=8"]})", "'methods[0]'", "chunks");
  refused(R"({"tasks": ["needle"], "methods": ["yarn:factr=2+full"]})", "'methods[0]'", "factr");
}

TEST(Suite, RefusesWhatIsNoAblation) {
  const auto refused = [](const std::string& task, const std::string& words) {
    const auto suite = ParseSuite(R"({"tasks": [)" + task + "]}", "s.json", kExtras);
    ASSERT_FALSE(suite) << task;
    EXPECT_NE(suite.error().message.find(words), std::string::npos) << suite.error().message;
  };
  refused(R"("ablation")", "'tasks[0]' must be an object with 'of'");
  refused(R"({"task": "ablation", "of": "passkey"})", "'tasks[0].of' is 'passkey'");
  refused(R"({"task": "ablation", "of": "ablation"})", "'tasks[0].of.task' is 'ablation'");
  refused(R"({"task": "ablation", "of": "needle", "methods": ["full"]})", "'tasks[0].methods' is no key");
  refused(R"({"task": "ablation", "of": {"task": "needle", "methods": ["full"]}})",
          "'tasks[0].of.methods' is no key");
  refused(R"({"task": "ablation", "of": "needle", "chunk": 100})",
          "'tasks[0]' --window 4096 and --chunk 100");
  refused(R"({"task": "ablation", "of": "needle", "base": "begins=window"})", "'tasks[0].base'");
}

}  // namespace
}  // namespace longheads
