#include "report/html_table.h"

#include <fmt/format.h>

#include <cctype>

#include "base/csv.h"
#include "report/html.h"

namespace longheads {
namespace {

// Names of methods are long: lines may end behind their commas.
std::string NameHtml(const std::string& name) {
  std::string html = EscapeHtml(name);
  for (std::size_t at = 0; (at = html.find(',', at)) != std::string::npos; at += 6)
    html.insert(at + 1, "<wbr>");
  return html;
}

}  // namespace

std::string TableHtml(const TableRows& rows, std::size_t n_names) {
  std::string out = "<div class=\"scroll\"><table>\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += i == 0 ? "<thead><tr>" : "<tr>";
    for (std::size_t c = 0; c < rows[i].size(); ++c) {
      const TableCell& cell = rows[i][c];
      const char* const tag = i == 0 || c < n_names ? "th" : "td";
      const char* const scope = i == 0 ? " scope=\"col\"" : c < n_names ? " scope=\"row\"" : "";
      const bool is_name = i > 0 && c < n_names;
      out += fmt::format("<{}{}>{}", tag, scope, is_name ? NameHtml(cell.text) : EscapeHtml(cell.text));
      if (!cell.small.empty()) out += fmt::format(" <small>{}</small>", EscapeHtml(cell.small));
      out += fmt::format("</{}>", tag);
    }
    out += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string CsvNumber(double value) { return fmt::format("{:.6g}", value); }

std::string TableCsv(const std::vector<std::vector<std::string>>& rows) {
  std::string csv;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) csv += (c == 0 ? "" : ",") + CsvField(row[c]);
    csv += "\n";
  }
  return csv;
}

std::string FileName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

}  // namespace longheads
