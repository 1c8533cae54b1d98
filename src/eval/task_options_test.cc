#include "eval/task_options.h"

#include <gtest/gtest.h>

#include "eval/task_registry.h"

namespace longheads {
namespace {

const std::vector<TaskOption> kKnown = {{"lengths", "N,N,...", "4k,8k", ""},
                                        {"repeats", "N", "2", ""},
                                        {"spacing", "linear|sigmoid", "linear", ""},
                                        {"share", "X", "0.5", ""}};

TEST(TaskOptions, GivesWhatIsTypedAndElseTheStandard) {
  TaskOptions standard(kKnown, {});
  EXPECT_EQ(standard.Counts("lengths", 1, 100000), (std::vector<int64_t>{4096, 8192}));
  EXPECT_EQ(standard.Count("repeats", 1, 10), 2);
  EXPECT_EQ(standard.Choice("spacing"), "linear");
  EXPECT_EQ(standard.Number("share", 0, 1), 0.5);
  TaskOptions given(kKnown, {{"lengths", "1k,100,1k"}, {"spacing", "sigmoid"}});
  EXPECT_EQ(given.Counts("lengths", 1, 100000), (std::vector<int64_t>{1024, 100}));
  EXPECT_EQ(given.List("lengths"), (std::vector<std::string>{"1k", "100"}));
  EXPECT_EQ(given.Choice("spacing"), "sigmoid");
  EXPECT_TRUE(given.given("spacing"));
  EXPECT_FALSE(given.given("share"));
  EXPECT_TRUE(standard.status() && given.status());
}

TEST(TaskOptions, RefusesWithTheOptionsName) {
  const auto refused = [](const std::string& name, const std::string& value, auto read,
                          const std::string& words) {
    TaskOptions options(kKnown, {{name, value}});
    read(options);
    ASSERT_FALSE(options.status()) << name << " " << value;
    const std::string message = options.status().error().message;
    EXPECT_TRUE(message.starts_with("--" + name)) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  const auto counts = [](TaskOptions& o) { o.Counts("lengths", 100, 10000); };
  refused("lengths", "4k,x", counts, "x");
  refused("lengths", "4k,50", counts, "has 50, but must be 100 to 10000");
  refused("lengths", "", counts, "empty");
  refused(
      "repeats", "1,2", [](TaskOptions& o) { o.Count("repeats", 1, 9); }, "one number");
  refused(
      "spacing", "log", [](TaskOptions& o) { o.Choice("spacing"); }, "linear, sigmoid");
  refused(
      "share", "nan", [](TaskOptions& o) { o.Number("share", 0, 1); }, "0 to 1");
  refused(
      "share", "2", [](TaskOptions& o) { o.Number("share", 0, 1); }, "0 to 1");
  refused(
      "depth", "2", [](TaskOptions&) {}, "none of its options, which are lengths, repeats");
}

// What --help and the documentation say must be what is taken.
TEST(TaskRegistry, StandardsOfEveryTaskAreTaken) {
  for (const TaskKind& kind : TaskKinds()) {
    EXPECT_FALSE(kind.summary.empty());
    EXPECT_EQ(FindTaskKind(kind.name), &kind);
    TaskOptions options(kind.options, {});
    (void)kind.make(options);  // whether its files are here is not asked
    EXPECT_TRUE(options.status()) << options.status().error().message;
    const auto refused = MakeTask(kind, {{"no-such", "1"}});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("--no-such"), std::string::npos);
  }
  EXPECT_EQ(FindTaskKind("no-such"), nullptr);
}

TEST(TaskOptions, ATypeShowsWhatStandsBetweenValues) {
  EXPECT_EQ(ListSeparator({.name = "a", .type = "N,N,...", .standard = "", .meaning = ""}), ',');
  EXPECT_EQ(ListSeparator({.name = "a", .type = "TEXT;...", .standard = "", .meaning = ""}), ';');
  EXPECT_EQ(ListSeparator({.name = "a", .type = "N", .standard = "", .meaning = ""}), '\0');
  EXPECT_EQ(ListSeparator({.name = "a", .type = "...", .standard = "", .meaning = ""}), '\0');
}

}  // namespace
}  // namespace longheads
