#include "eval/needlebench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "eval/random.h"
#include "eval/text_hash.h"
#include "formats/line_file.h"
#include "scoring/retrieval_scores.h"

namespace longheads {
namespace {

constexpr int64_t kTokensPerNeedle = 40;

// The official standard: eleven, each near a tenth.
constexpr const char* kDepths = "0,10,21,31,42,52,63,73,84,94,100";

// The text before the first `mark`, with it.
std::string UpTo(const std::string& text, const std::string& mark) {
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? text : text.substr(0, at + mark.size());
}

// What stands between the first two single quotes, up to its first full stop.
std::string QuotedFormat(const std::string& text) {
  const std::size_t begin = text.find('\'');
  if (begin == std::string::npos) return "";
  const std::string quoted = text.substr(begin + 1, text.find('\'', begin + 1) - begin - 1);
  return quoted.substr(0, quoted.find('.'));
}

}  // namespace

std::vector<BenchNeedle> StandardBenchNeedles() {
  constexpr std::array<std::array<const char*, 2>, 22> kHidden = {{
      {"Aldermoor", "Glass Compass"},   {"Brackwater", "Copper Crown"},  {"Cindershore", "Winter Lamp"},
      {"Dunmarrow", "Ivory Harp"},      {"Eastholm", "Silver Anvil"},    {"Fennerick", "Amber Chalice"},
      {"Gullhaven", "Iron Feather"},    {"Harrowmere", "Crystal Bell"},  {"Inverlock", "Painted Shield"},
      {"Jadewick", "Singing Sword"},    {"Kestrel Rock", "Velvet Map"},  {"Lowenfels", "Bronze Mirror"},
      {"Merrowind", "Golden Spindle"},  {"Northreach", "Marble Key"},    {"Osterley", "Thunder Drum"},
      {"Pellinore", "Emerald Ring"},    {"Quillsand", "Wooden Falcon"},  {"Ravensey", "Scarlet Cloak"},
      {"Saltmarsh", "Pearl Hourglass"}, {"Tarnwood", "Obsidian Dagger"}, {"Umberfall", "Moonlit Scroll"},
      {"Wyvernay", "Sapphire Helmet"},
  }};
  std::vector<BenchNeedle> needles;
  for (const auto& [island, item] : kHidden) {
    needles.push_back(
        {.sentence = fmt::format("The legendary item hidden on the island of {} is the {}.", island, item),
         .question = fmt::format("What legendary item is hidden on the island of {}?", island),
         .format = fmt::format("The legendary item hidden on the island of {} is ______", island),
         .keyword = item});
  }
  return needles;
}

Result<std::vector<BenchNeedle>> ReadBenchNeedles(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return InvalidInput(
        fmt::format("--needles {}: there is no such file; NeedleBench (the data set opencompass/NeedleBench) "
                    "publishes its "
                    "needles as needles.jsonl",
                    path));
  }
  LH_ASSIGN(const LineFile file, LineFile::Open(path));
  std::vector<BenchNeedle> needles;
  std::set<std::string> subjects, keywords;
  for (int64_t i = 0; i < file.n_lines(); ++i) {
    LH_ASSIGN(const std::string line, file.Line(i));
    try {
      const Json json = ParseJson(line);
      if (json.at("language").get<std::string>() != "English") continue;
      const std::string question = json.at("retrieval_question").get<std::string>();
      BenchNeedle needle{.sentence = json.at("needle").get<std::string>(),
                         .question = UpTo(question, "?"),
                         .format = QuotedFormat(question),
                         .keyword = json.at("arg2").get<std::string>()};
      const std::string subject = json.at("arg1").get<std::string>();
      if (subjects.contains(subject) || keywords.contains(needle.keyword)) continue;
      subjects.insert(subject);
      keywords.insert(needle.keyword);
      needles.push_back(std::move(needle));
    } catch (const nlohmann::json::exception& error) {
      return InvalidInput(
          fmt::format("{} is no needle of NeedleBench ({}): the official file is needles.jsonl",
                      file.PlaceOf(i), error.what()));
    }
  }
  return needles;
}

NeedleBenchTask::NeedleBenchTask(Haystack haystack, std::vector<BenchNeedle> needles,
                                 NeedleBenchOptions options)
    : haystack_(std::move(haystack)), needles_(std::move(needles)), options_(std::move(options)) {
  std::string all;
  for (const BenchNeedle& needle : needles_) all += needle.sentence + needle.question + needle.keyword;
  needles_hash_ = TextHash(all);
  for (const int64_t length : options_.lengths) {
    for (int64_t repeat = 0; repeat < options_.n_repeats; ++repeat) {
      samples_.push_back({.id = fmt::format("{}-{}", length, repeat),
                          .cell = {{"length", length}},
                          .tokens = length,
                          .number = repeat});
    }
  }
}

Json NeedleBenchTask::Setup() const {
  return {{"version", 1},
          {"haystack", haystack_.name()},
          {"haystack_hash", haystack_.hash()},
          {"needles_hash", needles_hash_},
          {"depths", options_.depths},
          {"buffer", options_.buffer},
          {"seed", options_.seed},
          {"predict", options_.max_new}};
}

Result<Question> NeedleBenchTask::Ask(const Engine& engine, PromptForm form, const Sample& sample,
                                      const CancelToken* cancel) const {
  const Tokenizer& tokenizer = engine.tokenizer();
  std::vector<BenchNeedle> needles = needles_;
  SampleRandom random(options_.seed, {sample.tokens, sample.number});
  random.Shuffle(needles);
  needles.resize(options_.depths.size());
  int64_t n_haystack = sample.tokens - options_.buffer;
  for (const BenchNeedle& needle : needles) {
    LH_ASSIGN(const std::vector<TokenId> tokens,
              tokenizer.Encode("\n" + needle.sentence + "\n", {.cancel = cancel}));
    n_haystack -= static_cast<int64_t>(tokens.size());
  }
  if (n_haystack < 1) {
    return InvalidInput(fmt::format(
        "--lengths {} is too short for {} needles and --buffer {}: use fewer --depths or a longer text",
        sample.tokens, needles.size(), options_.buffer));
  }
  LH_ASSIGN(const std::vector<TokenId> tokens,
            haystack_.Tokens(tokenizer, sample.number, n_haystack, cancel));
  Question question;
  std::string& text = question.text.rest;
  text = "Read the document below. Its last line asks about it; keep to the document, and to the point.\n\n";
  std::vector<std::string> questions, formats, keywords;
  std::size_t done = 0;
  for (std::size_t i = 0; i < needles.size(); ++i) {
    const std::size_t place = tokens.size() * static_cast<std::size_t>(options_.depths[i]) / 100;
    text += tokenizer.Decode(std::span(tokens).subspan(done, place - done), /*special=*/false);
    text += fmt::format("\n{}\n", needles[i].sentence);
    done = place;
    questions.push_back(needles[i].question);
    formats.push_back(needles[i].format);
    keywords.push_back(needles[i].keyword);
  }
  text += tokenizer.Decode(std::span(tokens).subspan(done), /*special=*/false);
  text += fmt::format(
      "\n\n{} First consider what in the document has most to do with these questions. Answer in this form: "
      "'{}'\n",
      fmt::join(questions, " "), fmt::join(formats, "; "));
  if (form == PromptForm::kPlain) question.text.answer_begin = "Answer:";
  question.references = keywords;
  question.max_new =
      options_.max_new > 0 ? options_.max_new : kTokensPerNeedle * static_cast<int64_t>(needles.size());
  return question;
}

Score NeedleBenchTask::Judge(const Question& question, const std::string& answer) const {
  const std::vector<std::string> keywords = question.references.get<std::vector<std::string>>();
  Score score{.value = ShareContained(answer, keywords, LetterCase::kDistinguished)};
  Json found = Json::object();
  for (std::size_t i = 0; i < keywords.size(); ++i) {
    found[fmt::format("depth_{}", options_.depths[i])] =
        ShareContained(answer, std::span(&keywords[i], 1), LetterCase::kDistinguished);
  }
  score.values = std::move(found);
  return score;
}

TaskKind NeedleBenchKind() {
  return {
      .name = "needlebench",
      .summary = "Hides a needle at each of several depths and asks for all of them at once (NeedleBench)",
      .options = {{"lengths", "N,N,...", "2k,4k,8k",
                   "tokens of the text with its needles, and the buffer; k is 1024"},
                  {"depths", "P,P,...", kDepths,
                   "percent of the text before each needle, rising; as many needles"},
                  {"repeats", "N", "10",
                   "texts of each length, with other needles and another piece of the haystack"},
                  {"buffer", "N", "500",
                   "tokens of a length that are for the question and the answer; officially 3000"},
                  {"seed", "S", "0", "of the choice of needles"},
                  {"needles", "FILE", "", "official needles, needles.jsonl, in the place of ours"},
                  {"predict", "N", "0", "most tokens of an answer; 0: 40 for each needle"},
                  Haystack::Option()},
      .notes =
          "The score of a text is the share of its needles whose keyword the answer has. ESA's runs have "
          "three "
          "needles,\n--depths 10,50,90 --repeats 10.\n\nExample:\n  longheads eval needlebench --attn "
          "'longheads;esa' --depths 10,50,90 --lengths 4k,16k --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 800, kMostRounds = 1000;
        NeedleBenchOptions options{.lengths = o.Counts("lengths", kShortest, kLongestText),
                                   .depths = o.Counts("depths", 0, 100),
                                   .n_repeats = o.Count("repeats", 1, kMostRounds),
                                   .buffer = o.Count("buffer", 1, kLongestText),
                                   .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX)),
                                   .max_new = o.Count("predict", 0, kLongestText)};
        if (!std::ranges::is_sorted(options.depths)) o.Fail("depths", " must rise");
        LH_TRY(o.status());
        std::vector<BenchNeedle> needles = StandardBenchNeedles();
        if (o.given("needles")) {
          LH_ASSIGN(needles, ReadBenchNeedles(o.Text("needles")));
        }
        if (needles.size() < options.depths.size()) {
          return InvalidInput(
              fmt::format("--depths has {} places, but there are {} needles with a subject and a "
                          "keyword of their own",
                          options.depths.size(), needles.size()));
        }
        LH_ASSIGN(Haystack haystack, Haystack::Load(o.Text("haystack")));
        return std::make_unique<NeedleBenchTask>(std::move(haystack), std::move(needles), std::move(options));
      }};
}

}  // namespace longheads
