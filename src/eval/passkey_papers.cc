#include "eval/passkey_papers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "eval/experiment.h"
#include "eval/passkey_prompt.h"
#include "eval/random.h"
#include "eval/selection_stats.h"
#include "scoring/retrieval_scores.h"

namespace longheads {
namespace {

constexpr int64_t kMostCharacters = 64 << 20;
constexpr int64_t kCharactersPerToken = 4;  // about, for the time that is left
constexpr int64_t kYarnStep = 128;          // characters
// InfiniteBench's text of 128k tokens.
constexpr int64_t kOfficialUnits = 5220, kUnitsBetweenPlaces = 90;
constexpr int64_t kLandmarkTokens = 10;
// Without characters of their own: keys have up to ten digits, and a vocabulary may have a token for each.
constexpr int64_t kAnswerTokens = 16;
constexpr const char* kLandmarkCharacters =
    "0,100,500,1000,5000,8000,10000,12000,14000,18000,20000,25000,38000";
constexpr const char* kAnswerBegin = " The pass key is";

constexpr std::pair<std::string_view, PasskeyPaper> kPapers[] = {
    {"longheads", PasskeyPaper::kLongHeads},
    {"landmark", PasskeyPaper::kLandmark},
    {"yarn", PasskeyPaper::kYarn},
    {"lm-infinite", PasskeyPaper::kLmInfinite},
    {"self-extend", PasskeyPaper::kSelfExtend},
    {"infinitebench", PasskeyPaper::kInfiniteBench}};

std::string_view NameOf(PasskeyPaper paper) {
  return std::ranges::find(kPapers, paper, &std::pair<std::string_view, PasskeyPaper>::second)->first;
}

std::string KeyLine(const std::string& key) {
  return fmt::format("The pass key is {0}. Remember it. {0} is the pass key.", key);
}

// n units, or their first characters.
std::string Units(int64_t n, char between) {
  std::string text;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) text += between;
    text += kPasskeyUnit;
  }
  return text;
}
std::string Characters(int64_t n) {
  std::string text = Units(n / static_cast<int64_t>(kPasskeyUnit.size()) + 1, ' ');
  text.resize(static_cast<std::size_t>(n));
  return text;
}

}  // namespace

std::optional<PasskeyPaper> FindPasskeyPaper(std::string_view name) {
  for (const auto& [known, paper] : kPapers) {
    if (known == name) return paper;
  }
  return std::nullopt;
}

int64_t PasskeyFillerCharacters(int64_t length) {
  return static_cast<int64_t>(std::floor(3.75 * static_cast<double>(length) / 1024)) * 1024;
}

PasskeyPaperTask::PasskeyPaperTask(PasskeyPaperOptions options) : options_(std::move(options)) {
  for (const int64_t length : options_.lengths) {
    for (int64_t d = 0; d < std::max<int64_t>(1, options_.n_depths); ++d) {
      for (int64_t repeat = 0; repeat < options_.n_repeats; ++repeat) {
        Json cell = {{options_.by_characters ? "characters" : "length", length}};
        if (options_.n_depths > 0) {
          cell["depth"] = std::round(1e4 * DepthOf({.length = length, .depth_index = d})) / 100;
        }
        const std::string place = options_.n_depths > 0 ? fmt::format("-{}of{}", d, options_.n_depths) : "";
        const char* const unit = options_.by_characters ? "characters" : "";
        samples_.push_back({.id = fmt::format("{}{}{}-{}", length, unit, place, repeat),
                            .cell = std::move(cell),
                            .tokens = options_.by_characters ? length / kCharactersPerToken : length,
                            .number = static_cast<int64_t>(cases_.size())});
        cases_.push_back({.length = length, .depth_index = d, .repeat = repeat});
      }
    }
  }
}

Json PasskeyPaperTask::Setup() const {
  Json setup = {
      {"version", 2}, {"paper", NameOf(options_.paper)}, {"chunk", options_.chunk}, {"seed", options_.seed}};
  if (options_.paper == PasskeyPaper::kSelfExtend) setup["digits"] = options_.digits;
  return setup;
}

std::string PasskeyPaperTask::KeyOf(const Case& c) const {
  SampleRandom random(options_.seed, {c.length, c.depth_index, c.repeat, 1});
  const auto from_one_to = [&](int64_t most) { return fmt::format("{}", 1 + random.Below(most)); };
  switch (options_.paper) {
    case PasskeyPaper::kLongHeads:
      return from_one_to(49999);
    case PasskeyPaper::kLandmark:
    case PasskeyPaper::kYarn:
      return from_one_to(50000);
    case PasskeyPaper::kLmInfinite:
      return from_one_to(9999999);
    case PasskeyPaper::kSelfExtend: {
      const auto least = static_cast<int64_t>(std::pow(10, options_.digits - 1));
      return fmt::format("{}", least + random.Below(9 * least));
    }
    case PasskeyPaper::kInfiniteBench:
      return fmt::format("{:05}", random.Below(100000));
  }
  return {};
}

double PasskeyPaperTask::DepthOf(const Case& c) const {
  if (options_.n_depths == 1) return 0.5;
  if (options_.n_depths > 1)
    return static_cast<double>(c.depth_index) / static_cast<double>(options_.n_depths - 1);
  SampleRandom random(options_.seed, {c.length, c.repeat, 2});
  switch (options_.paper) {
    case PasskeyPaper::kSelfExtend:
      return 0.5;  // fixed; where, the published example leaves to its file
    case PasskeyPaper::kInfiniteBench:
      // From before the first unit to behind the last one.
      return static_cast<double>(random.Below(kOfficialUnits / kUnitsBetweenPlaces + 1) *
                                 kUnitsBetweenPlaces) /
             kOfficialUnits;
    default:
      return static_cast<double>(random.Below(1 << 30)) / (1 << 30);
  }
}

std::string PasskeyPaperTask::Text(const Case& c, int64_t filler) const {
  const int64_t before = std::llround(DepthOf(c) * static_cast<double>(filler));
  const std::string line = KeyLine(KeyOf(c));
  if (has_characters()) {
    // What follows the key begins with the unit's beginning again.
    return fmt::format("{}\n{}\n{}\n{}\n", kPasskeyTask, Characters(before), line,
                       Characters(filler - before));
  }
  const char between = options_.paper == PasskeyPaper::kLmInfinite ? ' ' : '\n';
  std::string text = fmt::format("{}\n", kPasskeyTask);
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += part + between;
  };
  add(Units(before, between));
  add(line);
  add(Units(filler - before, between));
  return text;
}

Result<PasskeyPaperTask::Asked> PasskeyPaperTask::Ask(const Engine& engine, PromptForm form, const Case& c,
                                                      int64_t filler, const CancelToken* cancel) const {
  Asked asked{.text = {.rest = Text(c, filler) + "What is the pass key?", .answer_begin = kAnswerBegin},
              .prompt = {}};
  LH_ASSIGN(asked.prompt, EncodePromptText(engine, form, asked.text, cancel));
  return asked;
}

Result<int64_t> PasskeyPaperTask::FillerOf(const Engine& engine, PromptForm form, const Case& c,
                                           const CancelToken* cancel) const {
  if (has_fixed_filler()) return options_.by_characters ? c.length : PasskeyFillerCharacters(c.length);
  // As much as the length has room for. YaRN's prompts stay below it, and their answers do not count in it.
  const bool yarn = options_.paper == PasskeyPaper::kYarn;
  const int64_t room = c.length - (yarn ? 1 : kAnswerTokens);
  const int64_t step = yarn ? kYarnStep : 1;
  const auto tokens_with = [&](int64_t n_steps) -> Result<int64_t> {
    LH_ASSIGN(const Asked asked, Ask(engine, form, c, n_steps * step, cancel));
    return static_cast<int64_t>(asked.prompt.tokens.size());
  };
  LH_ASSIGN(const int64_t none, tokens_with(0));
  if (none > room) {
    return InvalidInput(
        fmt::format("--lengths {} is too short: without any filler the prompt takes {} tokens of "
                    "this model, and it may have {}",
                    c.length, none, room));
  }
  int64_t n_steps = 20;
  LH_ASSIGN(int64_t tokens, tokens_with(n_steps));
  const double per_step = static_cast<double>(tokens - none) / static_cast<double>(n_steps);
  // Steps take nearly as many tokens each: a few corrected guesses come close.
  for (int round = 0; round < 8; ++round) {
    const auto off = static_cast<int64_t>(static_cast<double>(room - tokens) / per_step);
    if (off == 0) break;
    n_steps = std::max<int64_t>(0, n_steps + off);
    LH_ASSIGN(tokens, tokens_with(n_steps));
  }
  while (tokens > room) {
    LH_ASSIGN(tokens, tokens_with(--n_steps));
  }
  for (;; ++n_steps) {
    LH_ASSIGN(const int64_t more, tokens_with(n_steps + 1));
    if (more > room) return n_steps * step;
  }
}

Status PasskeyPaperTask::Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const {
  LH_TRY(FillerOf(engine, form, CaseOf(*std::ranges::min_element(samples_, {}, &Sample::tokens)), cancel));
  return {};
}

bool IsSplit(const Tokenizer& tokenizer, std::span<const TokenId> tokens, const std::string& text,
             int64_t chunk) {
  // In blocks of one token each, the tokens that hold the text.
  const std::vector<int64_t> places = BlocksOf(tokenizer, tokens, text, {.first = 0, .tokens = 1});
  for (std::size_t i = 1; i < places.size(); ++i) {
    const bool together = places[i] == places[i - 1] + 1;
    if (together && places[i] / chunk != places[i - 1] / chunk) return true;
  }
  return false;
}

Result<SampleOutcome> PasskeyPaperTask::Measure(const TaskContext& context, const Sample& sample) {
  Engine& engine = context.engine;
  const Case& c = CaseOf(sample);
  const std::string key = KeyOf(c);
  LH_ASSIGN(const int64_t filler, FillerOf(engine, context.form, c, context.cancel));
  LH_ASSIGN(const Asked asked, Ask(engine, context.form, c, filler, context.cancel));
  const auto n_tokens = static_cast<int64_t>(asked.prompt.tokens.size());
  // The official test compares as many tokens as the answer has.
  LH_ASSIGN(const std::vector<TokenId> right, EncodeAfter(engine.tokenizer(), kAnswerBegin, " " + key));
  Question question{.text = asked.text};
  question.max_new = options_.paper == PasskeyPaper::kLongHeads ? static_cast<int64_t>(right.size())
                     : has_characters()                         ? kLandmarkTokens
                                                                : kAnswerTokens;
  LH_ASSIGN(const bool changed, engine.ExpectText(n_tokens + question.max_new));
  if (changed) context.reader.Forget();
  LH_ASSIGN(PromptReader::Prompted prompted,
            context.reader.Read(asked.prompt, context.cancel, context.on_prefill));
  LH_ASSIGN(Generated answer, engine.Generate(prompted.session, prompted.hidden,
                                              {.max_tokens = question.max_new, .cancel = context.cancel}));
  if (answer.reason == StopReason::kCancelled) return Interrupted();
  const bool correct =
      options_.paper == PasskeyPaper::kLongHeads ? answer.tokens == right : FirstInteger(answer.text) == key;
  const bool split =
      IsSplit(engine.tokenizer(), engine.ModelTokens(asked.prompt.tokens), KeyLine(key), options_.chunk);
  return SampleOutcome{.score = correct ? 1.0 : 0.0,
                       .cell = {{"split", split ? "yes" : "no"}},
                       .values = {{"key", key}, {"depth", DepthOf(c)}},
                       .answer = std::move(answer.text),
                       .references = {key},
                       .tokens = n_tokens,
                       .shared = prompted.shared,
                       .generated = static_cast<int64_t>(answer.tokens.size())};
}

TaskKind PasskeyPaperKind() {
  return {
      .name = "passkey-papers",
      .summary = "Pass keys as the published programs of LongHeads, Landmark, YaRN and others ask for them",
      .options =
          {{"paper", "longheads|landmark|yarn|lm-infinite|self-extend|infinitebench", "longheads",
            "whose form; yarn's is also Quest's"},
           {"lengths", "N,N,...", "2k,4k,8k",
            "tokens; longheads and landmark put floor(3.75 k) * 1024 characters of filler for k * 1024"},
           {"characters", "N,N,...", kLandmarkCharacters,
            "of longheads and landmark, in the place of --lengths: characters of filler; landmark's own "
            "unless --lengths is given"},
           {"depths", "N", "0",
            "places from 0 to 100 percent of the filler before the key; 0: the program's own"},
           {"repeats", "N", "10", "keys for each length and depth"},
           {"digits", "5|10", "5", "of self-extend's keys"},
           {"chunk", "N", "256", "a key whose line crosses a multiple of so many tokens is split"},
           {"seed", "S", "0", "of keys and places"}},
      .notes =
          "Records and the CSV say whether the line with the key was split between chunks (LongHeads, Table "
          "7). "
          "The needle grid\nof its appendix G is --lengths 1k,4k,7k,...,49k --depths 11 --repeats 10; "
          "InfiniteBench's 590 keys are at --depths 59\n--repeats 10. Keys and places come from a generator "
          "of our own, so single prompts are not the published ones.\n\nExample:\n  "
          "longheads eval passkey-papers --paper longheads --attn longheads,window=2048,begin=window --form "
          "plain "
          "--lengths\n  4k,8k --repeats 50 --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 300, kMostRounds = 10000;
        const PasskeyPaper paper = FindPasskeyPaper(o.Choice("paper")).value();
        const bool landmark = paper == PasskeyPaper::kLandmark;
        if (o.given("characters") && !landmark && paper != PasskeyPaper::kLongHeads) {
          o.Fail("characters", " is for longheads and landmark alone: lengths of the others are tokens");
        }
        const bool by_characters = o.given("characters") || (landmark && !o.given("lengths"));
        PasskeyPaperOptions options{.paper = paper,
                                    .lengths = by_characters ? o.Counts("characters", 0, kMostCharacters)
                                                             : o.Counts("lengths", kShortest, kLongestText),
                                    .by_characters = by_characters,
                                    .n_depths = o.Count("depths", 0, kMostRounds),
                                    .n_repeats = o.Count("repeats", 1, kMostRounds),
                                    .digits = o.Choice("digits") == "10" ? 10 : 5,
                                    .chunk = o.Count("chunk", 1, kLongestText),
                                    .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX))};
        LH_TRY(o.status());
        return std::make_unique<PasskeyPaperTask>(std::move(options));
      }};
}

}  // namespace longheads
