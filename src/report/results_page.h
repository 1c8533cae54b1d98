// What experiments found as one page: tables beside the papers', needle maps, curves with their intervals,
// and with what all of it was measured. The page holds all it needs; its figures and tables can stand beside
// it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/results.h"

namespace longheads {

struct ReportOrigin {
  std::string title;    // what the page is called
  std::string program;  // name, version, commit
  std::string machine;  // where the report was made
};

struct Report {
  std::string page;
  std::vector<std::pair<std::string, std::string>> files;  // names and contents: *.svg, *.csv
};

Report MakeReport(const Results& results, const ReportOrigin& origin);

}  // namespace longheads
