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
}

}  // namespace
}  // namespace longheads
