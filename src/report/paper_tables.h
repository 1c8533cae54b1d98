// The papers' own numbers (paper_tables.txt), to lay beside what was measured.
#pragma once

#include <string>
#include <vector>

namespace longheads {

struct PaperTable {
  std::string title;
  std::vector<std::vector<std::string>> rows;  // the first is the header; all are as long
  std::string note = {};                       // what is to be known of it
};

// Of one task, as `longheads eval` calls it; "ablation" for what is measured of LongHeads' variants.
std::vector<PaperTable> PaperTablesOf(const std::string& task);

}  // namespace longheads
