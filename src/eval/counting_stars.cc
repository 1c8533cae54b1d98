#include "eval/counting_stars.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/json.h"
#include "eval/random.h"
#include "eval/text_hash.h"
#include "formats/input_file.h"
#include "scoring/retrieval_scores.h"

namespace longheads {
namespace {

constexpr int64_t kMostStars = 100;  // numbers go to 100, each once
constexpr int64_t kMostSamples = 1000;
// "100, " where a vocabulary has a token for each digit, and what the list ends with.
constexpr int64_t kTokensPerStar = 5, kTokensAround = 20;

constexpr const char* kQuestion =
    "\n\n\n\nTonight the little penguin looks up at the sky and counts stars, again and again. Which numbers "
    "of "
    "stars did the little penguin count? Answer in JSON alone, with every number in the order of the text "
    "and "
    "without adding them up, like this: {\"little_penguin\": [x, x, x, ...]}";
// ESA's prompts end in it.
constexpr const char* kAnswerBegin = "\n{\"little_penguin\": [";

int64_t MaxNew(const CountingStarsOptions& options, std::size_t n_stars) {
  return options.max_new > 0 ? options.max_new
                             : static_cast<int64_t>(n_stars) * kTokensPerStar + kTokensAround;
}

// The official sizes are words; a line need not have one.
double ContextWords(const Json& line) {
  const Json size = line.value("context_size", Json(0));
  return size.is_number() ? std::clamp(size.get<double>(), 0.0, double{kLongestText}) : 0;
}

}  // namespace

CountingStarsTask::CountingStarsTask(Haystack haystack, CountingStarsOptions options)
    : options_(options), haystack_(std::move(haystack)) {
  for (int64_t i = 1; i <= options_.n_samples; ++i) {
    const int64_t size = options_.context / options_.n_samples * i;
    samples_.push_back({.id = fmt::format("{}-{}", options_.n_stars, size),
                        .cell = {{"stars", options_.n_stars}, {"length", size}},
                        .tokens = size});
  }
}

Result<std::unique_ptr<Task>> CountingStarsTask::FromFile(const std::string& path,
                                                          CountingStarsOptions options) {
  std::unique_ptr<CountingStarsTask> task(new CountingStarsTask());
  task->options_ = options;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return InvalidInput(fmt::format(
        "--data {}: there is no such file; the project nick7nlp/Counting-Stars publishes its English "
        "texts as Counting_Stars_EN_acquisition_*.jsonl",
        path));
  }
  LH_ASSIGN(task->file_, LineFile::Open(path));
  LH_ASSIGN(const std::string bytes, ReadFile(path));
  task->file_hash_ = TextHash(bytes);
  for (int64_t i = 0; i < task->file_->n_lines(); ++i) {
    Sample sample{.id = fmt::format("{}", i), .number = i};
    const Result<Question> question = task->Read(sample);
    if (!question) {
      task->samples_.push_back(std::move(sample));
      continue;
    }
    const int64_t n_stars = static_cast<int64_t>(question->references.size());
    LH_ASSIGN(const std::string line, task->file_->Line(i));
    sample.tokens = static_cast<int64_t>(ContextWords(ParseJson(line)) / options.words_per_token);
    sample.cell = {{"stars", n_stars}, {"length", sample.tokens}};
    task->samples_.push_back(std::move(sample));
  }
  if (task->samples_.empty()) return InvalidInput(path + " is empty: it has no sample of Counting-Stars");
  return task;
}

Json CountingStarsTask::Setup() const {
  Json setup = {{"version", 1}};
  if (file_) {
    setup["data"] = std::filesystem::path(file_->name()).filename().string();
    setup["data_hash"] = file_hash_;
  } else {
    setup["haystack"] = haystack_->name();
    setup["haystack_hash"] = haystack_->hash();
    setup["seed"] = options_.seed;
  }
  setup["words_per_token"] = options_.words_per_token;
  setup["predict"] = options_.max_new;
  return setup;
}

std::vector<int64_t> CountingStarsTask::Stars(const Sample& sample) const {
  std::vector<int64_t> numbers(kMostStars);
  std::iota(numbers.begin(), numbers.end(), 1);
  SampleRandom random(options_.seed, {sample.cell.at("stars").get<int64_t>(), sample.tokens});
  random.Shuffle(numbers);
  numbers.resize(static_cast<std::size_t>(options_.n_stars));
  return numbers;
}

Result<Question> CountingStarsTask::Read(const Sample& sample) const try {
  LH_ASSIGN(const std::string line, file_->Line(sample.number));
  const Json json = ParseJson(line);
  Question question;
  question.text.rest = json.at("question").get<std::string>();
  constexpr const char* kStars = "reference_counting_results";
  std::vector<int64_t> stars;
  for (const Json& star : json.at(kStars).get_ref<const Json::array_t&>()) {
    stars.push_back(ToCount(star, kStars));
  }
  if (stars.empty()) return InvalidInput(file_->PlaceOf(sample.number) + ": no numbers to find");
  question.references = stars;
  return question;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(fmt::format(
      "{} is no sample of Counting-Stars ({}): the official files are Counting_Stars_EN_acquisition_*.jsonl",
      file_->PlaceOf(sample.number), error.what()));
}

Result<Question> CountingStarsTask::Ask(const Engine&, PromptForm, const Sample& sample,
                                        const CancelToken*) const {
  Question question;
  if (file_) {
    LH_ASSIGN(question, Read(sample));
  } else {
    const std::vector<int64_t> stars = Stars(sample);
    const auto n_words =
        static_cast<std::size_t>(static_cast<double>(sample.tokens) * options_.words_per_token);
    const std::vector<std::string> words = haystack_->Words(/*number=*/0, n_words);
    const std::size_t step = n_words / stars.size();
    if (step == 0) {
      return InvalidInput(
          fmt::format("the text of {} tokens has fewer words than --stars {}: use a longer "
                      "--context, fewer --samples or fewer stars",
                      sample.tokens, stars.size()));
    }
    std::string& text = question.text.rest;
    for (std::size_t i = 0; i < n_words; ++i) {
      if (i > 0 && text.back() != '\n') text += ' ';
      text += words[i];
      const std::size_t star = (i + 1) / step;
      if ((i + 1) % step == 0 && star <= stars.size()) {
        text += fmt::format("\nThe little penguin counted {} \u2605\n", stars[star - 1]);
      }
    }
    text += kQuestion;
    question.references = stars;
  }
  question.text.answer_begin = kAnswerBegin;
  question.max_new = MaxNew(options_, question.references.size());
  question.stops = {"]"};
  return question;
}

Score CountingStarsTask::Judge(const Question& question, const std::string& answer) const {
  const std::vector<int64_t> stars = question.references.get<std::vector<int64_t>>();
  return {.value = CountingStarsRecall(answer, stars)};
}

TaskKind CountingStarsKind() {
  return {.name = "counting-stars",
          .summary = "Spreads sentences with numbers over a text and asks for all of them (Counting-Stars)",
          .options = {{"context", "N", "8k", "tokens of the longest text, by --words-per-token; k is 1024"},
                      {"stars", "N", "32", "sentences with a number in each text, 1 to 100"},
                      {"samples", "N", "8", "texts: of 1/N, 2/N, ... of the context"},
                      {"words-per-token", "X", "0.8", "how many words of the text count as a token"},
                      {"seed", "S", "0", "of the numbers"},
                      {"predict", "N", "0", "most tokens of an answer; 0: 5 for each number and 20"},
                      {"data", "FILE", "",
                       "an official file, Counting_Stars_EN_acquisition_*.jsonl, in the place of all these"},
                      Haystack::Option()},
          .notes =
              "The score is the recall of the numbers in the first list of the answer. The paper's sets are "
              "--context 128000\n--stars 32 --samples 32 and --context 256000 with 8, 16 and 32 "
              "stars.\n\nExample:\n"
              "  longheads eval counting-stars --attn 'longheads;esa' --context 16k --stars 16 --out results",
          .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
            constexpr int64_t kShortest = 200;
            const CountingStarsOptions options{.context = o.Count("context", kShortest, kLongestText),
                                               .n_stars = o.Count("stars", 1, kMostStars),
                                               .n_samples = o.Count("samples", 1, kMostSamples),
                                               .words_per_token = o.Number("words-per-token", 0.01, 10),
                                               .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX)),
                                               .max_new = o.Count("predict", 0, kLongestText)};
            LH_TRY(o.status());
            if (o.given("data")) return CountingStarsTask::FromFile(o.Text("data"), options);
            LH_ASSIGN(Haystack haystack, Haystack::Load(o.Text("haystack")));
            return std::make_unique<CountingStarsTask>(std::move(haystack), options);
          }};
}

}  // namespace longheads
