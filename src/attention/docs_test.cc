// The pages of docs/methods say what the program says: every method has its page, and the page holds the
// table of options that the registry makes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "attention/frequency_registry.h"
#include "attention/registry.h"

namespace longheads {
namespace {

const std::filesystem::path kPages = std::filesystem::path(LONGHEADS_SOURCE_DIR) / "docs" / "methods";

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<MethodInfo> AllMethods() {
  std::vector<MethodInfo> all = FrequencyMethods();
  all.insert(all.end(), Methods().begin(), Methods().end());
  return all;
}

TEST(MethodPages, HoldTheTableOfOptionsThatTheProgramHas) {
  for (const MethodInfo& method : AllMethods()) {
    const std::string page = Read(kPages / PageOf(method));
    EXPECT_FALSE(page.empty()) << "docs/methods/" << PageOf(method) << " is missing: " << method.name
                               << " belongs there";
    const std::string table = OptionTable(method);
    EXPECT_NE(page.find("\n" + table + "\n"), std::string::npos)
        << "docs/methods/" << PageOf(method) << " must hold this, as 'longheads methods " << method.name
        << " --markdown' prints it, between blank lines:\n"
        << table;
  }
}

TEST(MethodPages, SayTheSpecOfTheirMethods) {
  for (const MethodInfo& method : AllMethods()) {
    const std::string page = Read(kPages / PageOf(method));
    const std::string spec = "--attn " + method.name;
    const std::size_t at = page.find(spec);
    ASSERT_NE(at, std::string::npos) << PageOf(method) << " has no '" << spec << "'";
  }
}

TEST(MethodPages, AreOfMethodsThatThereAre) {
  std::set<std::string> known;
  for (const MethodInfo& method : AllMethods()) known.insert(PageOf(method));
  for (const auto& entry : std::filesystem::directory_iterator(kPages)) {
    EXPECT_TRUE(known.contains(entry.path().filename().string())) << entry.path();
  }
}

// A choice's bars would end the table's cells.
TEST(OptionTable, KeepsToFourCells) {
  for (const MethodInfo& method : AllMethods()) {
    std::istringstream lines(OptionTable(method));
    for (std::string line; std::getline(lines, line);) {
      if (method.options.empty()) continue;
      EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 5) << method.name << ": " << line;
    }
  }
}

}  // namespace
}  // namespace longheads
