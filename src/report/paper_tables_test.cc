// The papers' tables: all there, whole, and adding up as they are printed.
#include "report/paper_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "eval/infinitebench.h"
#include "eval/longbench.h"

namespace longheads {
namespace {

// Printed averages that their own entries do not have, by table and method; the entries' is given, and the
// table's note says it.
const std::map<std::pair<std::string, std::string>, double> kMisprints = {
    {{"LongHeads, Table 2: LongBench at 32k, Llama-2-7B", "LongHeads, PI"}, 32.18},
    {{"ESA, Table 2: InfiniteBench, Mistral-7B-Instruct-v0.2", "Origin"}, 25.98},
    {{"ESA, Table 9: LongBench, LM-Infinite with the top 5, Llama-3-8B-Instruct", "LM-Infinite, top 5"},
     39.04}};

TEST(PaperTables, AreRectangularAndOfEveryExperiment) {
  for (const char* const task :
       {"ppl", "ppl-windows", "longbench", "selection", "ablation", "efficiency", "passkey", "passkey-papers",
        "infinitebench", "counting-stars", "needlebench"}) {
    const std::vector<PaperTable> tables = PaperTablesOf(task);
    ASSERT_FALSE(tables.empty()) << task;
    for (const PaperTable& table : tables) {
      EXPECT_FALSE(table.title.empty());
      ASSERT_GT(table.rows.size(), 1u) << table.title;
      for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.rows[0].size()) << table.title;
    }
  }
  EXPECT_TRUE(PaperTablesOf("unheard of").empty());
  // One number of the first table, as the paper prints it.
  const PaperTable table = PaperTablesOf("ppl")[0];
  EXPECT_EQ(table.rows.back(), (std::vector<std::string>{"LongHeads (2k window)", "6.98", "8.15", "8.41"}));
  EXPECT_NE(table.note.find("S = 256"), std::string::npos);
}

// Table 5 measures pass keys, which several experiments do; Table 7 is of where their sentences fall.
TEST(PaperTables, StandWithTheExperimentsThatMeasureTheSame) {
  const auto titles = [](const std::string& task) {
    std::string all;
    for (const PaperTable& table : PaperTablesOf(task)) all += table.title + "\n";
    return all;
  };
  for (const char* const task : {"passkey", "passkey-papers", "efficiency"}) {
    EXPECT_NE(titles(task).find("Table 5: pass keys"), std::string::npos) << task;
  }
  EXPECT_EQ(titles("passkey").find("Table 7"), std::string::npos);
  EXPECT_NE(titles("passkey-papers").find("Table 7"), std::string::npos);
  for (const char* const table :
       {"LongHeads, Table 2", "LongHeads, Table 8", "ESA, Table 1", "ESA, Table 8", "ESA, Table 9"}) {
    EXPECT_NE(titles("longbench").find(table), std::string::npos) << table;
  }
  EXPECT_NE(titles("infinitebench").find("ESA, Table 5"), std::string::npos);
  EXPECT_NE(titles("needlebench").find("ESA, Table 7"), std::string::npos);
  EXPECT_EQ(PaperTablesOf("longbench").size(), 8u);
  EXPECT_EQ(PaperTablesOf("infinitebench").size(), 3u);
}

TEST(PaperTables, PrintedAveragesAreThoseOfTheEntries) {
  int n = 0;
  for (const char* const task : {"longbench", "infinitebench", "counting-stars", "needlebench"}) {
    for (const PaperTable& table : PaperTablesOf(task)) {
      if (table.rows[0].back() != "average") continue;
      for (std::size_t r = 1; r < table.rows.size(); ++r) {
        const std::vector<std::string>& row = table.rows[r];
        SCOPED_TRACE(table.title + ": " + row[0]);
        double sum = 0;
        for (std::size_t c = 1; c + 1 < row.size(); ++c) sum += std::stod(row[c]);
        const double mean = sum / static_cast<double>(row.size() - 2);
        const auto misprint = kMisprints.find({table.title, row[0]});
        if (misprint != kMisprints.end()) {
          EXPECT_NE(table.note.find("printed"), std::string::npos);
          EXPECT_NEAR(mean, misprint->second, 0.0101);
          continue;
        }
        // Averages are printed to one decimal or to two.
        const double printed = 10 * std::stod(row.back());
        const bool one_decimal = std::abs(printed - std::round(printed)) < 1e-9;
        EXPECT_NEAR(mean, printed / 10, one_decimal ? 0.0501 : 0.0101);
        ++n;
      }
    }
  }
  EXPECT_EQ(n, 77);
}

TEST(PaperTables, ColumnsAreDataSetsThatRunHere) {
  for (const PaperTable& table : PaperTablesOf("longbench")) {
    for (std::size_t c = 1; c + 1 < table.rows[0].size(); ++c) {
      EXPECT_NE(FindLongBench(table.rows[0][c]), nullptr) << table.rows[0][c];
    }
  }
  for (const PaperTable& table : PaperTablesOf("infinitebench")) {
    for (std::size_t c = 1; c < table.rows[0].size(); ++c) {
      const std::string& column = table.rows[0][c];
      EXPECT_TRUE(column == "average" || FindInfiniteBench(column) != nullptr) << column;
    }
  }
}

}  // namespace
}  // namespace longheads
