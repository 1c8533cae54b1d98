// Tables in pages, and files' names made of what is in them.
#pragma once

#include <string>
#include <vector>

namespace longheads {

// A cell of a table: what it says, and in small what qualifies it.
struct TableCell {
  std::string text;
  std::string small = {};
};

using TableRows = std::vector<std::vector<TableCell>>;

// The first row is the header, the first `n_names` cells of every row name it. Wide ones can be moved
// sideways.
std::string TableHtml(const TableRows& rows, std::size_t n_names = 1);
// A number as tables of files have it: six digits.
std::string CsvNumber(double value);
std::string TableCsv(const std::vector<std::vector<std::string>>& rows);

// "passkey-free-answers-right": lower case, letters and digits.
std::string FileName(const std::string& text);

}  // namespace longheads
