#include "tests/support/result_journals.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

namespace longheads {
namespace {

ModelSetup Model() {
  return {.model = "tiny <b>.gguf",
          .model_bytes = 1000,
          .fingerprint = "0123456789abcdef",
          .compute = "f32",
          .kv = "f32",
          .backend = "auto"};
}

Provenance By() { return {.threads = 2, .program = "longheads 1, commit 2", .machine = "a <processor>"}; }

}  // namespace

ResultFolder::ResultFolder() {
  static int number = 0;
  path_ = std::filesystem::temp_directory_path() / fmt::format("longheads-results-{}-{}", getpid(), ++number);
  std::filesystem::create_directories(path_);
}

ResultFolder::~ResultFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ResultFolder::Append(const std::string& file, const std::string& line, bool finished) const {
  std::filesystem::create_directories((path_ / file).parent_path());
  std::ofstream(path_ / file, std::ios::app) << line << (finished ? "\n" : "");
}

PasskeyRecord MakePasskey(const std::string& attention, int64_t length, double depth, bool correct,
                          int64_t repeat) {
  PasskeyRecord r;
  r.setup = {.model = Model(), .style = {}, .max_tokens = 10, .seed = 0};
  r.attention = attention;
  r.which = {.length = length, .depth_ppm = std::llround(depth * 1e6), .repeat = repeat};
  r.key = 12345;
  r.tokens = length;
  r.answer = correct ? "12345" : "0";
  r.correct = correct;
  r.digits_right = correct ? 5 : 1;
  r.digits = 5;
  r.seconds = 2;
  r.by = By();
  return r;
}

PplRecord MakePpl(const std::string& attention, int64_t length, int64_t offset, double mean_nll) {
  PplRecord r;
  r.setup = {.model = Model(), .text = "book.txt", .text_bytes = 5000, .text_hash = "00ff"};
  r.attention = attention;
  r.which = {.length = length, .sample = 0, .offset = offset, .calls = {length - 4}};
  for (const double apart : {-0.1, 0.1, -0.2, 0.2}) r.score.Add(mean_nll + apart);
  r.by = By();
  return r;
}

TaskRecord MakeTask(const std::string& attention, const std::string& id, Json cell, double score,
                    const std::string& document) {
  TaskRecord r;
  r.setup = {.model = Model(), .attention = attention, .task = "needle", .options = {{"version", 1}}};
  r.fingerprint = r.setup.Fingerprint();
  r.sample = {.id = id, .document = document, .cell = std::move(cell)};
  r.measure = {.name = "accuracy"};
  r.measured = {.score = score, .values = {{"peak memory, MiB", 100 * score}}, .answer = "a", .tokens = 100};
  r.seconds = 3;
  r.by = By();
  r.time = "2026-01-01 00:00:00+0000";
  return r;
}

}  // namespace longheads
