#include "eval/passkey_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

namespace longheads {
namespace {

Error CannotWrite(const std::string& path, int error) {
  return {ErrorKind::kIo, fmt::format("{} cannot be written: {}; what is there so far stays, and the same "
                                      "command goes on from there",
                                      path, std::generic_category().message(error))};
}

struct Totals {
  int64_t cases = 0, correct = 0, digits_right = 0, digits = 0, tokens = 0, shared = 0;
  double seconds = 0;

  void Add(const PasskeyRecord& record) {
    ++cases;
    correct += record.correct ? 1 : 0;
    digits_right += record.digits_right;
    digits += record.digits;
    tokens += record.tokens;
    shared += record.shared;
    seconds += record.seconds;
  }
};

// Methods hold commas, file names anything.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string FormatLength(int64_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : fmt::format("{}", length);
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

}  // namespace

std::string PasskeyJson(const PasskeyRecord& r) {
  const nlohmann::ordered_json json = {
      {"attn", r.attention},
      {"length", r.which.length},
      {"tokens", r.tokens},
      {"depth", r.which.depth()},
      {"repeat", r.which.repeat},
      {"seed", r.setup.seed},
      {"key", r.key},
      {"answer", r.answer},
      {"correct", r.correct},
      {"digits_right", r.digits_right},
      {"digits", r.digits},
      {"seconds", std::round(r.seconds * 1000) / 1000},
      {"shared", r.shared},
      {"form", PasskeyFormName(r.setup.style.form)},
      {"filler", PasskeyFillerName(r.setup.style.filler)},
      {"max_tokens", r.setup.max_tokens},
      {"model", r.setup.model},
      {"model_bytes", r.setup.model_bytes},
      {"compute", r.setup.compute},
      {"kv", r.setup.kv},
      {"backend", r.setup.backend},
      {"rope", r.setup.rope},
      {"threads", r.threads},
  };
  // A file name may be no UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<PasskeyRecord> ParsePasskeyJson(const std::string& line) try {
  const nlohmann::json json = nlohmann::json::parse(line);
  const std::string form_name = json.at("form"), filler_name = json.at("filler");
  const std::optional<PasskeyForm> form = FindPasskeyForm(form_name);
  if (!form) return InvalidInput(fmt::format("'form' is '{}'", form_name));
  const std::optional<PasskeyFiller> filler = FindPasskeyFiller(filler_name);
  if (!filler) return InvalidInput(fmt::format("'filler' is '{}'", filler_name));
  PasskeyRecord r;
  r.attention = json.at("attn");
  r.which.length = json.at("length");
  r.which.depth_ppm = std::llround(json.at("depth").get<double>() * 1e6);
  r.which.repeat = json.at("repeat");
  r.tokens = json.at("tokens");
  r.shared = json.at("shared");
  r.key = json.at("key");
  r.answer = json.at("answer");
  r.correct = json.at("correct");
  r.digits_right = json.at("digits_right");
  r.digits = json.at("digits");
  r.seconds = json.at("seconds");
  r.threads = json.at("threads");
  r.setup = {.model = json.at("model"),
             .model_bytes = json.at("model_bytes"),
             .style = {.form = *form, .filler = *filler},
             .compute = json.at("compute"),
             .kv = json.at("kv"),
             .backend = json.at("backend"),
             .max_tokens = json.at("max_tokens"),
             .seed = json.at("seed"),
             .rope = json.value("rope", "")};
  return r;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(error.what());
}

std::string PasskeyCsv(std::span<const PasskeyRecord> records) {
  struct Row {
    PasskeySetup setup;
    std::string attention;
    int64_t length;
    Totals totals;
  };
  std::vector<Row> rows;
  for (const PasskeyRecord& record : records) {
    PasskeySetup setup = record.setup;
    setup.seed = 0;
    const auto same = [&](const Row& row) {
      return row.length == record.which.length && row.attention == record.attention && row.setup == setup;
    };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {setup, record.attention, record.which.length, {}});
    row->totals.Add(record);
  }
  std::string csv =
      "attn,length,cases,correct,digits_right,digits,mean_tokens,mean_shared,seconds,model,form,filler,"
      "compute,kv,backend,max_tokens,rope\n";
  for (const Row& row : rows) {
    const Totals& t = row.totals;
    const auto mean = [&](int64_t total) {
      return static_cast<double>(total) / static_cast<double>(t.cases);
    };
    csv += fmt::format("{},{},{},{},{},{},{:.1f},{:.1f},{:.3f},{},{},{},{},{},{},{},{}\n",
                       CsvField(row.attention), row.length, t.cases, t.correct, t.digits_right, t.digits,
                       mean(t.tokens), mean(t.shared), t.seconds, CsvField(row.setup.model),
                       PasskeyFormName(row.setup.style.form), PasskeyFillerName(row.setup.style.filler),
                       row.setup.compute, row.setup.kv, row.setup.backend, row.setup.max_tokens,
                       CsvField(row.setup.rope));
  }
  return csv;
}

std::string PasskeyTable(std::span<const PasskeyRecord> records, std::span<const std::string> attention,
                         std::span<const int64_t> lengths) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"attn"});
  for (const int64_t length : lengths) rows[0].push_back(FormatLength(length));
  for (const std::string& spec : attention) {
    rows.push_back({spec});
    for (const int64_t length : lengths) {
      Totals t;
      for (const PasskeyRecord& record : records) {
        if (record.which.length == length && record.attention == spec) t.Add(record);
      }
      rows.back().push_back(t.cases == 0 ? "-"
                                         : fmt::format("{}/{} free, {}/{} digits", t.correct, t.cases,
                                                       t.digits_right, t.digits));
    }
  }
  std::string table;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      if (column > 0) line += "  ";
      line += column == 0 ? fmt::format("{:<{}}", row[0], width) : fmt::format("{:>{}}", row[column], width);
    }
    table += line + "\n";
  }
  return table;
}

Result<PasskeyJournal> PasskeyJournal::Open(const std::string& directory) {
  namespace fs = std::filesystem;
  PasskeyJournal journal;
  journal.directory_ = directory;
  journal.path_ = (fs::path(directory) / "passkey.jsonl").string();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error || !fs::is_directory(directory, error)) {
    return MakeError(ErrorKind::kIo, fmt::format("--out {} is not a directory and cannot be made one{}{}",
                                                 directory, error ? ": " : "", error ? error.message() : ""));
  }
  // A device or a pipe holds nothing to go on from.
  if (fs::is_regular_file(journal.path_, error)) {
    std::ifstream in(journal.path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (!in.good() && !in.eof()) {
      return MakeError(ErrorKind::kIo, fmt::format("{} cannot be read", journal.path_));
    }
    std::size_t end = 0;
    const std::vector<std::string> lines = WholeLines(text, end);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      Result<PasskeyRecord> record = ParsePasskeyJson(lines[i]);
      if (!record) {
        return InvalidInput(
            fmt::format("line {} of {} is not a passkey case ({}): mend it, or use another --out", i + 1,
                        journal.path_, record.error().message));
      }
      journal.records_.push_back(std::move(*record));
    }
    if (end < text.size()) fs::resize_file(journal.path_, end, error);
    if (error) return tl::unexpected<Error>(CannotWrite(journal.path_, error.value()));
  }
  journal.file_.reset(std::fopen(journal.path_.c_str(), "ab"));
  if (journal.file_ == nullptr) return tl::unexpected<Error>(CannotWrite(journal.path_, errno));
  return journal;
}

Status PasskeyJournal::Append(const PasskeyRecord& record) {
  const std::string line = PasskeyJson(record) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    return tl::unexpected<Error>(CannotWrite(path_, errno));
  }
  records_.push_back(record);
  return {};
}

Status PasskeyJournal::WriteSummary() const {
  const std::string path = (std::filesystem::path(directory_) / "passkey.csv").string();
  const std::string part = path + ".part";
  const std::string csv = PasskeyCsv(records_);
  std::FILE* const file = std::fopen(part.c_str(), "wb");
  if (file == nullptr) return tl::unexpected<Error>(CannotWrite(path, errno));
  const bool written = std::fwrite(csv.data(), 1, csv.size(), file) == csv.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  std::error_code error;
  if (!written || !closed) {
    error.assign(written ? errno : write_error, std::generic_category());
  } else {
    std::filesystem::rename(part, path, error);
  }
  if (!error) return {};
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  return tl::unexpected<Error>(CannotWrite(path, error.value()));
}

}  // namespace longheads
