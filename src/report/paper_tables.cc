#include "report/paper_tables.h"

#include <string_view>

#include "report/assets.h"

namespace longheads {
namespace {

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string> Split(std::string_view line, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = line.find(at);
    parts.emplace_back(Trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    line.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<PaperTable> PaperTablesOf(const std::string& task) {
  std::vector<PaperTable> tables;
  bool wanted = false;
  for (std::string_view rest = assets::kPaperTables; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (line.starts_with('=')) {
      const std::vector<std::string> parts = Split(line.substr(1), '=');
      wanted = parts[0] == task;
      if (wanted) tables.push_back({.title = parts[1], .rows = {}});
    } else if (wanted && !Trimmed(line).empty() && !line.starts_with('#')) {
      tables.back().rows.push_back(Split(line, '|'));
    }
  }
  return tables;
}

}  // namespace longheads
