#include "eval/ruler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "eval/passkey_prompt.h"
#include "eval/random.h"
#include "eval/text_hash.h"
#include "formats/input_file.h"
#include "scoring/retrieval_scores.h"

namespace longheads {
namespace {

constexpr int64_t kMostRepeats = 10000;

constexpr RulerTaskInfo kTasks[] = {{"niah_single_1", 128, false, true},
                                    {"niah_single_2", 128, false, false},
                                    {"niah_single_3", 128, false, false},
                                    {"niah_multikey_1", 128, false, false},
                                    {"niah_multikey_2", 128, false, true},
                                    {"niah_multikey_3", 128, false, true},
                                    {"niah_multivalue", 128, false, false},
                                    {"niah_multiquery", 128, false, false},
                                    {"vt", 30, false, true},
                                    {"cwe", 120, false, false},
                                    {"fwe", 50, false, false},
                                    {"qa_1", 32, true, false},
                                    {"qa_2", 32, true, false}};

// A key is one of each: enough for more lines than a prompt of 128k tokens has.
constexpr std::array kAdjectives = {
    "amber",   "ancient", "bitter",  "bold",   "brave",  "brief",  "bright",  "broken", "calm",   "clever",
    "cold",    "crisp",   "curious", "damp",   "dark",   "deep",   "distant", "dull",   "early",  "eager",
    "empty",   "faint",   "famous",  "fierce", "fine",   "firm",   "frosty",  "gentle", "giant",  "golden",
    "grand",   "grave",   "green",   "happy",  "hasty",  "hidden", "hollow",  "humble", "hungry", "idle",
    "jolly",   "keen",    "kind",    "late",   "lazy",   "light",  "little",  "lonely", "loud",   "loyal",
    "lucky",   "mellow",  "merry",   "mild",   "modest", "narrow", "noble",   "odd",    "old",    "pale",
    "patient", "plain",   "polite",  "proud",  "quick",  "quiet",  "rapid",   "rare",   "red",    "rich",
    "rough",   "round",   "royal",   "rusty",  "salty",  "sharp",  "shy",     "silent", "silver", "simple",
    "sleepy",  "slow",    "small",   "smooth", "soft",   "solid",  "spare",   "steady", "steep",  "strange",
    "sturdy",  "sunny",   "sweet",   "tall",   "tame",   "tidy",   "tiny",    "warm",   "wild",   "wise"};
constexpr std::array kNouns = {
    "anchor",  "apple",   "arrow",    "badger",  "barrel",  "basket", "beacon",  "bell",   "birch",
    "blanket", "bottle",  "bridge",   "bucket",  "button",  "cabin",  "candle",  "canyon", "carpet",
    "castle",  "cedar",   "chapel",   "cherry",  "cliff",   "clock",  "cloud",   "comet",  "copper",
    "cottage", "crane",   "crystal",  "desert",  "diamond", "donkey", "dragon",  "drum",   "eagle",
    "engine",  "falcon",  "feather",  "fern",    "fiddle",  "field",  "flute",   "forest", "fountain",
    "fox",     "garden",  "garlic",   "glacier", "goose",   "hammer", "harbor",  "hazel",  "hedge",
    "heron",   "hill",    "horn",     "island",  "ivy",     "jacket", "jungle",  "kettle", "kitten",
    "ladder",  "lantern", "lemon",    "lily",    "lion",    "magnet", "maple",   "market", "meadow",
    "mirror",  "monkey",  "mountain", "needle",  "nettle",  "oak",    "ocean",   "onion",  "orchard",
    "otter",   "paddle",  "pebble",   "pepper",  "pigeon",  "pillow", "planet",  "pocket", "pony",
    "puzzle",  "rabbit",  "raven",    "ribbon",  "river",   "saddle", "shell",   "shovel", "spider",
    "spoon",   "stable",  "statue",   "storm",   "tiger",   "tower",  "trumpet", "tunnel", "valley",
    "violin",  "walnut"};

std::string RandomWords(SampleRandom& random) {
  const auto pick = [&](const auto& words) {
    return words[static_cast<std::size_t>(random.Below(static_cast<int64_t>(words.size())))];
  };
  const std::string adjective = pick(kAdjectives);
  return adjective + "-" + pick(kNouns);
}

std::string RandomNumber(SampleRandom& random) { return fmt::format("{}", 1000000 + random.Below(9000000)); }

std::string RandomUuid(SampleRandom& random) {
  const uint64_t a = random.Next(), b = random.Next();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}", a >> 32, (a >> 16) & 0xffff, a & 0xfff,
                     8 + (b >> 62), (b >> 48) & 0xfff, b & 0xffffffffffff);
}

// Where in a text: a share of it, so that it does not depend on how many lines there are.
double RandomDepth(SampleRandom& random) {
  constexpr int64_t kSteps = 1 << 20;
  return static_cast<double>(random.Below(kSteps)) / kSteps;
}
int64_t PlaceAt(double depth, int64_t n_lines) {
  return static_cast<int64_t>(depth * static_cast<double>(n_lines + 1));
}

// No two keys of a text are the same, so that a question has one answer.
std::string NewKey(SampleRandom& random, bool uuid, std::set<std::string>& taken) {
  for (;;) {
    std::string key = uuid ? RandomUuid(random) : RandomWords(random);
    if (static_cast<int64_t>(taken.size()) >= static_cast<int64_t>(kAdjectives.size() * kNouns.size()) &&
        !uuid) {
      key += fmt::format("-{}", taken.size());  // beyond all pairs of words
    }
    if (taken.insert(key).second) return key;
  }
}

// ---- Keys with values

RulerPrompt MakeNeedles(std::string_view task, int64_t n_lines, uint64_t seed, int64_t length,
                        int64_t repeat) {
  const bool uuids = task == "niah_multikey_3";
  const bool noise = task == "niah_single_1";
  const char* const kind = uuids ? "code" : "number";
  SampleRandom random(seed, {length, repeat, uuids, noise});
  std::set<std::string> taken;
  const std::string key = NewKey(random, uuids, taken);
  const std::string value = uuids ? RandomUuid(random) : RandomNumber(random);
  const int64_t place = PlaceAt(RandomDepth(random), n_lines);
  const auto line = [&](const std::string& of, const std::string& its) {
    return fmt::format("The magic {} of {} is {}.", kind, of, its);
  };
  RulerPrompt needles{.values = {value}, .places = {place}};
  needles.text = fmt::format(
      "The text below gives magic {}s. Remember them: one of them is asked for after the text.\n", kind);
  for (int64_t i = 0; i <= n_lines; ++i) {
    if (i == place) {
      needles.text += line(key, value);
    } else if (noise) {
      needles.text += kPasskeyUnit;  // RULER's "noise"
    } else {
      const std::string other = NewKey(random, uuids, taken);
      needles.text += line(other, uuids ? RandomUuid(random) : RandomNumber(random));
    }
    needles.text += '\n';
  }
  needles.question = fmt::format("What is the magic {} of {} in the text above?", kind, key);
  needles.answer_begin = fmt::format(" The magic {} of {} in the text above is", kind, key);
  return needles;
}

// ---- Names that stand for a number

// Names of five capital letters, none taken before.
std::string NewName(SampleRandom& random, std::set<std::string>& taken) {
  for (;;) {
    std::string name;
    for (int i = 0; i < 5; ++i) name += static_cast<char>('A' + random.Below(26));
    if (taken.insert(name).second) return name;
  }
}

// The first name stands for the number, each other one for the name before it; in this order in the text.
struct Chain {
  std::vector<std::string> names;
  std::string number;
  std::vector<double> depths;  // ascending
};

Chain NewChain(SampleRandom& random, std::set<std::string>& taken) {
  constexpr int kNames = 5;  // RULER's four hops
  Chain chain;
  chain.number = fmt::format("{}", 10000 + random.Below(90000));
  for (int i = 0; i < kNames; ++i) {
    chain.names.push_back(NewName(random, taken));
    chain.depths.push_back(RandomDepth(random));
  }
  std::ranges::sort(chain.depths);
  return chain;
}

// The chain among n lines of noise, and what is asked of it.
RulerPrompt Tracking(const Chain& chain, int64_t n_lines) {
  RulerPrompt tracking{.values = chain.names};
  std::size_t next = 0;
  for (int64_t line = 0; line <= n_lines; ++line) {
    for (; next < chain.names.size() && PlaceAt(chain.depths[next], n_lines) == line; ++next) {
      tracking.text +=
          fmt::format("Let {} = {}.\n", chain.names[next], next == 0 ? chain.number : chain.names[next - 1]);
      tracking.places.push_back(line);
    }
    if (line < n_lines) tracking.text += fmt::format("{}\n", kPasskeyUnit);
  }
  tracking.question =
      fmt::format("Which names stand for {} in the text above? Follow the chain.", chain.number);
  tracking.answer_begin =
      fmt::format(" Along the chain in the text above, the {} names that stand for {} are",
                  chain.names.size(), chain.number);
  return tracking;
}

RulerPrompt MakeTracking(int64_t n_lines, uint64_t seed, int64_t length, int64_t repeat) {
  SampleRandom random(seed, {length, repeat, 2, 1});  // others than of needles
  std::set<std::string> taken;
  const Chain chain = NewChain(random, taken);
  constexpr int64_t kExampleLines = 5;
  const RulerPrompt example = Tracking(NewChain(random, taken), kExampleLines);
  const char* const task =
      "In the text below names are given to a number, and to each other. Remember them.\n";
  RulerPrompt tracking = Tracking(chain, n_lines);
  // As RULER does, with one that is done before.
  tracking.text = fmt::format("{}{}{}{} {}.\n\n{}{}", task, example.text, example.question,
                              example.answer_begin, fmt::join(example.values, ", "), task, tracking.text);
  return tracking;
}

}  // namespace

const RulerTaskInfo* FindRulerTask(std::string_view name) {
  const auto task = std::ranges::find(kTasks, name, &RulerTaskInfo::name);
  return task == std::end(kTasks) ? nullptr : task;
}

RulerPrompt MakeRulerPrompt(std::string_view task, int64_t n_lines, uint64_t seed, int64_t length,
                            int64_t repeat) {
  return task == "vt" ? MakeTracking(n_lines, seed, length, repeat)
                      : MakeNeedles(task, n_lines, seed, length, repeat);
}

Result<std::unique_ptr<Task>> RulerTask::Make(RulerOptions options) {
  auto task = std::make_unique<RulerTask>();
  task->options_ = std::move(options);
  for (const std::string& name : task->options_.tasks) {
    const RulerTaskInfo* const info = FindRulerTask(name);
    if (info == nullptr) {
      std::vector<std::string_view> names;
      for (const RulerTaskInfo& known : kTasks) names.push_back(known.name);
      return InvalidInput(
          fmt::format("--tasks has '{}', which is none of RULER's: {}", name, fmt::join(names, ", ")));
    }
    if (task->options_.data.empty() && !info->generated) {
      return InvalidInput(fmt::format(
          "{} is not made here: give --data DIR with the official generator's files (DIR/LENGTH/data/{}/"
          "validation.jsonl)",
          name, name));
    }
    for (const int64_t length : task->options_.lengths) {
      if (task->options_.data.empty()) {
        task->AddGenerated(*info, length);
      } else {
        LH_TRY(task->AddFile(*info, length));
      }
    }
  }
  return task;
}

void RulerTask::AddGenerated(const RulerTaskInfo& task, int64_t length) {
  for (int64_t repeat = 0; repeat < options_.n_repeats; ++repeat) {
    samples_.push_back({.id = fmt::format("{}-{}-{}", task.name, length, repeat),
                        .cell = {{"task", task.name}, {"length", length}},
                        .tokens = length,
                        .number = static_cast<int64_t>(sources_.size())});
    sources_.push_back({.task = &task, .length = length, .index = repeat});
  }
}

Status RulerTask::AddFile(const RulerTaskInfo& task, int64_t length) {
  namespace fs = std::filesystem;
  const fs::path path =
      fs::path(options_.data) / std::to_string(length) / "data" / std::string(task.name) / "validation.jsonl";
  std::error_code error;
  if (!fs::exists(path, error)) {
    return InvalidInput(fmt::format(
        "{} is not there: RULER's generator (scripts/data/prepare.py) writes it for {} and a length of {}",
        path.string(), task.name, length));
  }
  LH_ASSIGN(const std::string bytes, ReadFile(path.string()));
  // In the ids: which files a run names must not bear on the samples of the others.
  const std::string hash = TextHash(bytes);
  LH_ASSIGN(LineFile file, LineFile::Open(path.string()));
  int64_t n = file.n_lines();
  if (n == 0) return InvalidInput(path.string() + " is empty: it has no sample of RULER");
  if (options_.n_repeats > 0) n = std::min(n, options_.n_repeats);
  for (int64_t i = 0; i < n; ++i) {
    samples_.push_back({.id = fmt::format("{}-{}-line{}-of-{}", task.name, length, i, hash),
                        .cell = {{"task", task.name}, {"length", length}},
                        .tokens = length,
                        .number = static_cast<int64_t>(sources_.size())});
    sources_.push_back({.task = &task, .length = length, .index = i, .file = files_.size()});
  }
  files_.push_back(std::move(file));
  return {};
}

Json RulerTask::Setup() const {
  if (options_.data.empty()) return {{"version", 1}, {"seed", options_.seed}};
  return {{"version", 1}, {"data", "official"}};
}

Status RulerTask::Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const {
  // What official files hold is not the model's to refuse; a damaged line fails alone.
  return options_.data.empty() ? QuestionTask::Check(engine, form, cancel) : Status();
}

Result<Question> RulerTask::Ask(const Engine& engine, PromptForm form, const Sample& sample,
                                const CancelToken* cancel) const {
  const Source& source = sources_[static_cast<std::size_t>(sample.number)];
  Result<Question> question = options_.data.empty() ? Generate(engine, form, source, cancel) : Read(source);
  if (question) {
    question->max_new = source.task->max_new;
    question->references = {{"outputs", std::move(question->references)}, {"any", source.task->any}};
  }
  return question;
}

Result<Question> RulerTask::Read(const Source& source) const try {
  const LineFile& file = files_[source.file];
  LH_ASSIGN(const std::string line, file.Line(source.index));
  const Json json = ParseJson(line);
  Question question;
  question.text.rest = json.at("input").get<std::string>();
  if (json.contains("answer_prefix"))
    question.text.answer_begin = json.at("answer_prefix").get<std::string>();
  question.references = json.at("outputs").get<std::vector<std::string>>();
  if (question.references.empty()) return InvalidInput(file.PlaceOf(source.index) + ": 'outputs' is empty");
  return question;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(
      fmt::format("{} is no sample of RULER ({})", files_[source.file].PlaceOf(source.index), error.what()));
}

// About as many lines as fit, with the answer, into the length; never more.
Result<Question> RulerTask::Generate(const Engine& engine, PromptForm form, const Source& source,
                                     const CancelToken* cancel) const {
  RulerPrompt made;
  PromptText text;
  const auto tokens_with = [&](int64_t n_lines) -> Result<int64_t> {
    made = MakeRulerPrompt(source.task->name, n_lines, options_.seed, source.length, source.index);
    text = {.rest = made.text + made.question, .answer_begin = made.answer_begin};
    LH_ASSIGN(const Prompt prompt, EncodePromptText(engine, form, text, cancel));
    return static_cast<int64_t>(prompt.tokens.size()) + source.task->max_new;
  };
  LH_ASSIGN(const int64_t frame, tokens_with(0));
  if (frame > source.length) {
    return InvalidInput(
        fmt::format("--lengths {} is too short: the question and an answer of {} take {} tokens",
                    source.length, source.task->max_new, frame));
  }
  constexpr int64_t kProbe = 20;
  LH_ASSIGN(const int64_t probe, tokens_with(kProbe));
  const double per_line = static_cast<double>(probe - frame) / kProbe;
  int64_t n_lines = static_cast<int64_t>(static_cast<double>(source.length - frame) / per_line);
  // Lines are nearly alike: the guess is close, and where it is too much a step or two less will do.
  LH_ASSIGN(int64_t tokens, tokens_with(n_lines));
  while (tokens > source.length && n_lines > 0) {
    const double over = static_cast<double>(tokens - source.length);
    n_lines = std::max<int64_t>(0, n_lines - std::max<int64_t>(1, static_cast<int64_t>(over / per_line)));
    LH_ASSIGN(tokens, tokens_with(n_lines));
  }
  Question question;
  question.text = std::move(text);
  question.references = made.values;
  return question;
}

Score RulerTask::Judge(const Question& question, const std::string& answer) const {
  const std::vector<std::string> references =
      question.references.at("outputs").get<std::vector<std::string>>();
  const double share = ShareContained(answer, references, LetterCase::kIgnored);
  return {.value = question.references.at("any").get<bool>() ? (share > 0 ? 1.0 : 0.0) : share};
}

TaskKind RulerKind() {
  return {
      .name = "ruler",
      .summary = "RULER's tasks: official files, or retrieval among lines that are made here",
      .options = {{"tasks", "NAME,...", "niah_single_1,niah_multikey_2",
                   "RULER's names; without --data: niah_single_1, niah_multikey_2, niah_multikey_3, vt"},
                  {"lengths", "N,N,...", "2k,4k,8k",
                   "tokens of the prompt and the longest answer; k is 1024"},
                  {"samples", "N", "10", "of each task and length; 0: all lines of the official files"},
                  {"seed", "S", "0", "of what is made here"},
                  {"data", "DIR", "",
                   "folder with the official generator's files, LENGTH/data/TASK/validation.jsonl"}},
      .notes =
          "Tasks that are made here have RULER's structure and words of their own; figures to stand beside "
          "published ones\nneed its files. A file that was made for a model's template is a whole prompt: "
          "--form plain.\n\nExample:\n  longheads eval ruler --attn 'full;longheads' --tasks niah_multikey_2 "
          "--lengths 4k,16k --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 400;
        RulerOptions options{.data = o.Text("data"),
                             .tasks = o.List("tasks"),
                             .lengths = o.Counts("lengths", kShortest, kLongestText),
                             .n_repeats = o.Count("samples", 0, kMostRepeats),
                             .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX))};
        if (options.tasks.empty()) o.Fail("tasks", " is empty");
        if (options.n_repeats == 0 && options.data.empty())
          o.Fail("samples", " is 0, which goes with --data alone");
        LH_TRY(o.status());
        return RulerTask::Make(std::move(options));
      }};
}

}  // namespace longheads
