#include "eval/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "formats/output_file.h"
#include "scoring/retrieval_scores.h"

namespace longheads {
namespace {

// Ours: the sentence that everybody uses stands in too many models' training text.
constexpr const char* kNeedle =
    "The keeper of the Portmere lighthouse hides the spare key under the blue stone.";
constexpr const char* kQuestion = "Where does the keeper of the Portmere lighthouse hide the spare key?";
constexpr const char* kExpected = "blue stone";

// Tokens that the published program leaves for the question, the template and the answer.
constexpr int64_t kBuffer = 200;

double DepthOf(const Sample& sample) { return sample.cell.at("depth").get<double>(); }

// Of a sample that came from a file: the number at the end of its id.
int64_t RepeatOf(const Sample& sample) {
  int64_t repeat = 0;
  const char* const end = sample.id.data() + sample.id.size();
  std::from_chars(sample.id.data() + sample.id.rfind('-') + 1, end, repeat);
  return repeat;
}

// numpy.linspace(0, 100, n)[d] to the last bit: of 25, the 15th is a little more than 62.5, and rounds to 63.
double LinearDepth(int64_t d, int64_t n) {
  if (n == 1) return 50;
  return d == n - 1 ? 100 : static_cast<double>(d) * (100 / static_cast<double>(n - 1));
}

// The published program's, which falls as x grows: it names the same depths in another order.
double LogisticDepth(double x) {
  return std::nearbyint(100 * (1 / (1 + std::exp(0.1 * (x - 50)))) * 1000) / 1000;
}

// Of text, or of as many whole characters of it as the bytes hold.
std::string Beginning(const std::string& text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  std::size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

std::string ModelName(const TaskSetup& setup) {
  return std::filesystem::path(setup.model.model).stem().string();
}

std::string ModelAndMethod(const TaskSetup& setup) {
  return fmt::format("{}_{}", ModelName(setup), setup.attention);
}

// As the published program has it in names of files; of long ones the beginnings, since such a name has at
// most 255 bytes.
std::string InFileName(const TaskSetup& setup) {
  constexpr std::size_t kMostOfModel = 80, kMostOfMethod = 100;
  std::string name = fmt::format("{}_{}", Beginning(ModelName(setup), kMostOfModel),
                                 Beginning(setup.attention, kMostOfMethod));
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("./ :;").find(c) != std::string_view::npos; }, '_');
  return name;
}

// The published program's file for a cell, without its ending: that is in "file_name".
Json OfficialResult(const TaskRecord& r) {
  const int64_t length = r.sample.cell.at("length").get<int64_t>();
  const double depth = DepthOf(r.sample);
  const int64_t version = RepeatOf(r.sample) + 1;
  return {{"model", ModelAndMethod(r.setup)},
          {"context_length", length},
          {"depth_percent", depth},
          {"version", version},
          {"needle", r.setup.options.at("needle")},
          {"model_response", r.measured.answer},
          {"score", r.measured.score == 1 ? 10 : 1},
          {"test_duration_seconds", r.seconds},
          {"test_timestamp_utc", r.time},
          {"file_name",
           fmt::format("{}_len_{}_depth_{}{}", InFileName(r.setup), length, static_cast<int64_t>(depth * 100),
                       version == 1 ? "" : fmt::format("_version_{}", version))}};
}

}  // namespace

std::vector<double> NeedleDepths(int64_t n, bool sigmoid) {
  std::vector<double> depths;
  for (int64_t d = 0; d < n; ++d) {
    const double x = LinearDepth(d, n);
    if (!sigmoid) {
      depths.push_back(std::nearbyint(x));
    } else {
      depths.push_back(x == 0 || x == 100 ? x : LogisticDepth(x));
    }
  }
  std::ranges::sort(depths);
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  return depths;
}

std::size_t NeedlePlace(const Tokenizer& tokenizer, std::span<const TokenId> tokens, double depth_percent) {
  if (depth_percent == 100) return tokens.size();
  std::size_t place = static_cast<std::size_t>(static_cast<double>(tokens.size()) * (depth_percent / 100));
  const auto ends_sentence = [&](TokenId token) {
    const std::string text = tokenizer.TokenBytes(token, /*special=*/false);
    const std::size_t last = text.find_last_not_of(" \n");
    return last != std::string::npos && text[last] == '.';
  };
  while (place > 0 && !ends_sentence(tokens[place - 1])) --place;
  return place;
}

NeedleTask::NeedleTask(Haystack haystack, NeedleOptions options)
    : haystack_(std::move(haystack)), options_(std::move(options)) {
  for (const int64_t length : options_.lengths) {
    for (const double depth : options_.depths) {
      for (int64_t repeat = 0; repeat < options_.n_repeats; ++repeat) {
        samples_.push_back({.id = fmt::format("{}-{}-{}", length, depth, repeat),
                            .cell = {{"length", length}, {"depth", depth}},
                            .tokens = length,
                            .number = repeat});
      }
    }
  }
}

Json NeedleTask::Setup() const {
  return {{"version", 1},
          {"haystack", haystack_.name()},
          {"haystack_hash", haystack_.hash()},
          {"needle", options_.needle},
          {"question", options_.question},
          {"expect", options_.expected},
          {"predict", options_.max_new}};
}

Result<Question> NeedleTask::Ask(const Engine& engine, PromptForm form, const Sample& sample,
                                 const CancelToken* cancel) const {
  const Tokenizer& tokenizer = engine.tokenizer();
  LH_ASSIGN(const std::vector<TokenId> needle, tokenizer.Encode(" " + options_.needle, {.cancel = cancel}));
  const int64_t length = sample.cell.at("length").get<int64_t>();
  const int64_t n_haystack = length - kBuffer - static_cast<int64_t>(needle.size());
  if (n_haystack < 1) {
    return InvalidInput(
        fmt::format("--lengths {} is too short: {} tokens are left for the question and the answer, and the "
                    "needle takes {}",
                    length, kBuffer, needle.size()));
  }
  LH_ASSIGN(const std::vector<TokenId> tokens,
            haystack_.Tokens(tokenizer, sample.number, n_haystack, cancel));
  const std::size_t place = NeedlePlace(tokenizer, tokens, DepthOf(sample));
  const std::span<const TokenId> all(tokens);
  Question question;
  question.text.rest =
      fmt::format("{} {}{}\n\nAnswer from the text above, in one short sentence.\n{}",
                  tokenizer.Decode(all.first(place), /*special=*/false), options_.needle,
                  tokenizer.Decode(all.subspan(place), /*special=*/false), options_.question);
  if (form == PromptForm::kPlain) question.text.answer_begin = "\nAnswer:";
  question.max_new = options_.max_new;
  question.references = options_.expected;
  return question;
}

Score NeedleTask::Judge(const Question&, const std::string& answer) const {
  return {.value = ShareContained(answer, options_.expected, LetterCase::kIgnored) == 1 ? 1.0 : 0.0};
}

Status NeedleTask::Export(const std::string& directory, std::span<const TaskRecord> run) const {
  namespace fs = std::filesystem;
  LH_ASSIGN(const std::vector<TaskRecord> records, AllRecords(directory, name(), run));
  for (const TaskRecord& r : records) {
    if (!r.failed.empty()) continue;
    const fs::path folder =
        fs::path(directory) / "needle-results" / fmt::format("{}-{}", InFileName(r.setup), r.fingerprint);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return MakeError(ErrorKind::kIo, fmt::format("{}: {}", folder.string(), error.message()));
    const Json result = OfficialResult(r);
    const std::string file = result.at("file_name").get<std::string>() + "_results.json";
    LH_TRY(WriteFile((folder / file).string(), JsonLine(result) + "\n"));
  }
  return {};
}

TaskKind NeedleKind() {
  return {
      .name = "needle",
      .summary = "Hides one sentence in a long text and asks for it, over methods, lengths and depths",
      .options = {{"lengths", "N,N,...", "2k,4k,8k",
                   "tokens of the text with the needle, and 200 for the question and the answer; k is 1024"},
                  {"depths", "N", "5",
                   "places of the needle, from 0 to 100 percent of the text before it; 1: the middle"},
                  {"spacing", "linear|sigmoid", "linear",
                   "of the depths: sigmoid has more of them near the ends"},
                  {"repeats", "N", "1", "pieces of the haystack for each length and depth"},
                  {"needle", "TEXT", kNeedle, "the sentence"},
                  {"question", "TEXT", kQuestion, "what it answers"},
                  {"expect", "TEXT;...", kExpected,
                   "what a right answer has, whatever the case: all of these"},
                  {"predict", "N", "50", "most tokens of an answer"},
                  Haystack::Option()},
      .notes =
          "The protocol is LLMTest_NeedleInAHaystack's: the needle stands behind the last sentence that ends "
          "within\nits depth. Instead of a judge, an answer is right when it has the phrases of --expect. "
          "--out "
          "also writes\nthe official result files, a JSON for each cell, into a folder of DIR/needle-results "
          "for each setup (score\n10 or 1).\n\nExample:\n  longheads eval needle --attn 'full;longheads' "
          "--lengths 4k,8k,16k --depths 11 "
          "--out "
          "results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 300, kMostRounds = 1000;
        NeedleOptions options{
            .lengths = o.Counts("lengths", kShortest, kLongestText),
            .depths = NeedleDepths(o.Count("depths", 1, kMostRounds), o.Choice("spacing") == "sigmoid"),
            .n_repeats = o.Count("repeats", 1, kMostRounds),
            .needle = o.Text("needle"),
            .question = o.Text("question"),
            .expected = o.List("expect", ';'),
            .max_new = o.Count("predict", 1, kMostRounds)};
        if (options.needle.empty()) o.Fail("needle", " is empty");
        if (options.question.empty()) o.Fail("question", " is empty");
        if (options.expected.empty()) o.Fail("expect", " is empty");
        const bool other = o.given("needle") || o.given("question");
        if (other && !(o.given("needle") && o.given("question") && o.given("expect"))) {
          o.Fail("needle", ", --question and --expect belong together: give all three or none");
        }
        LH_TRY(o.status());
        LH_ASSIGN(Haystack haystack, Haystack::Load(o.Text("haystack")));
        return std::make_unique<NeedleTask>(std::move(haystack), std::move(options));
      }};
}

}  // namespace longheads
