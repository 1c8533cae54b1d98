#include "report/paper_tables.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "report/assets.h"

namespace longheads {
namespace {

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string> Split(std::string_view line, char at, std::size_t most = SIZE_MAX) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = parts.size() + 1 < most ? line.find(at) : std::string_view::npos;
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
      const std::vector<std::string> parts = Split(line.substr(1), '=', /*most=*/2);
      const std::vector<std::string> tasks = Split(parts[0], ',');
      wanted = std::ranges::find(tasks, task) != tasks.end();
      if (wanted) tables.push_back({.title = parts[1], .rows = {}});
    } else if (wanted && line.starts_with('>')) {
      std::string& note = tables.back().note;
      note += (note.empty() ? "" : " ") + std::string(Trimmed(line.substr(1)));
    } else if (wanted && !Trimmed(line).empty() && !line.starts_with('#')) {
      tables.back().rows.push_back(Split(line, '|'));
    }
  }
  return tables;
}

}  // namespace longheads
