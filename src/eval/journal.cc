#include "eval/journal.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "formats/output_file.h"

namespace longheads {
namespace {

Error CannotWrite(const std::string& path, int error) {
  return {ErrorKind::kIo, fmt::format("{} cannot be written: {}; what is there so far stays, and the same "
                                      "command goes on from there",
                                      path, std::generic_category().message(error))};
}

// The whole lines of a text, and where they end; what follows the last line break is no line.
std::vector<std::string> WholeLines(const std::string& text, std::size_t& end) {
  std::vector<std::string> lines;
  end = 0;
  for (std::size_t at; (at = text.find('\n', end)) != std::string::npos; end = at + 1) {
    lines.push_back(text.substr(end, at - end));
  }
  return lines;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string ExperimentOfJournal(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos) return name;
  const std::string_view part = std::string_view(name).substr(dash + 1);
  const std::size_t of = std::min(part.find("of"), part.size());
  const bool is_part = IsNumber(part.substr(0, of)) && IsNumber(part.substr(std::min(of + 2, part.size())));
  return is_part ? name.substr(0, dash) : name;
}

Result<std::size_t> ReadJournalLines(const std::string& path, std::string_view a_case,
                                     const std::function<Status(const std::string& line)>& take) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof()) return MakeError(ErrorKind::kIo, fmt::format("{} cannot be read", path));
  std::size_t end = 0;
  const std::vector<std::string> lines = WholeLines(text, end);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Status taken = take(lines[i]);
    if (!taken) {
      return InvalidInput(fmt::format("line {} of {} is not {} ({}): mend it, or use another --out", i + 1,
                                      path, a_case, taken.error().message));
    }
  }
  return end;
}

Result<JournalFile> JournalFile::Open(const std::string& directory, std::string_view name,
                                      std::string_view a_case,
                                      const std::function<Status(const std::string& line)>& take) {
  namespace fs = std::filesystem;
  JournalFile journal;
  journal.path_ = (fs::path(directory) / fmt::format("{}.jsonl", name)).string();
  journal.summary_path_ = (fs::path(directory) / fmt::format("{}.csv", name)).string();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error || !fs::is_directory(directory, error)) {
    return MakeError(ErrorKind::kIo, fmt::format("--out {} is not a directory and cannot be made one{}{}",
                                                 directory, error ? ": " : "", error ? error.message() : ""));
  }
  journal.file_.reset(std::fopen(journal.path_.c_str(), "ab"));
  if (journal.file_ == nullptr) return tl::unexpected<Error>(CannotWrite(journal.path_, errno));
  // A device or a pipe holds nothing to go on from.
  if (fs::is_regular_file(journal.path_, error)) {
    // Two runs would run the same cases and mix their lines. File systems without locks do without.
    if (flock(fileno(journal.file_.get()), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return MakeError(
          ErrorKind::kIo,
          fmt::format("another run writes to {}: wait for it, or use another --out", journal.path_));
    }
    LH_ASSIGN(const std::size_t end, ReadJournalLines(journal.path_, a_case, take));
    const std::uintmax_t size = fs::file_size(journal.path_, error);
    if (!error && end < size) fs::resize_file(journal.path_, end, error);
    if (error) return tl::unexpected<Error>(CannotWrite(journal.path_, error.value()));
  }
  return journal;
}

Status JournalFile::Append(const std::string& line) {
  const std::string whole = line + "\n";
  if (std::fwrite(whole.data(), 1, whole.size(), file_.get()) == whole.size() &&
      std::fflush(file_.get()) == 0) {
    return {};
  }
  return tl::unexpected<Error>(CannotWrite(path_, errno));
}

Status JournalFile::WriteSummary(const std::string& csv) const { return WriteFile(summary_path_, csv); }

std::string FormatLength(int64_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : fmt::format("{}", length);
}

std::string AlignColumns(std::span<const std::vector<std::string>> rows) {
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      if (column > 0) line += "  ";
      line += column == 0 ? fmt::format("{:<{}}", row[0], width) : fmt::format("{:>{}}", row[column], width);
    }
    text += line + "\n";
  }
  return text;
}

std::string LengthTable(std::span<const std::string> attention, std::span<const int64_t> lengths,
                        const std::function<std::string(const std::string&, int64_t)>& cell) {
  std::vector<std::vector<std::string>> rows = {{"attn"}};
  for (const int64_t length : lengths) rows[0].push_back(FormatLength(length));
  for (const std::string& spec : attention) {
    rows.push_back({spec});
    for (const int64_t length : lengths) rows.back().push_back(cell(spec, length));
  }
  return AlignColumns(rows);
}

}  // namespace longheads
