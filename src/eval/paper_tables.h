// What the papers report for the benchmarks that run here, to stand beside our own figures. Numbers are as
// printed; an average that the printed entries do not have is kept and named in paper_tables_test.cc.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace longheads {

struct PaperRow {
  std::string_view method;
  std::vector<double> scores;  // percent, by column
  std::optional<double> average;
};

struct PaperTable {
  std::string_view task;    // the experiment's name here
  std::string_view source;  // paper and table
  std::string_view model;
  std::string_view setting;
  std::vector<std::string_view> columns;  // data sets as their files are called, lengths, or (context, m, n)
  std::vector<PaperRow> rows;
};

std::span<const PaperTable> LongBenchPaperTables();
std::span<const PaperTable> RetrievalPaperTables();  // infinitebench, counting-stars, needlebench

// All of an experiment's.
std::vector<const PaperTable*> FindPaperTables(std::string_view task);

}  // namespace longheads
