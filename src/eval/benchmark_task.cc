#include "eval/benchmark_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/json.h"
#include "eval/text_hash.h"

namespace longheads {
namespace {

// For the time that is left: what most texts come to.
constexpr int64_t kBytesPerToken = 4;

// Tokens that the chat template puts round a text.
Result<int64_t> TemplateTokens(const Engine& engine, const CancelToken* cancel) {
  LH_ASSIGN(const std::vector<TokenId> chat, engine.EncodePrompt("x", /*chat=*/true, cancel));
  LH_ASSIGN(const std::vector<TokenId> plain, engine.EncodePrompt("x", /*chat=*/false, cancel));
  return static_cast<int64_t>(chat.size()) - static_cast<int64_t>(plain.size());
}

Result<Json> ParseLine(const std::string& text) try {
  Json line = ParseJson(text);
  if (line.is_object()) return line;
  return InvalidInput("is no JSON object");
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(fmt::format("is no JSON object ({})", error.what()));
}

}  // namespace

Result<std::unique_ptr<BenchmarkTask>> BenchmarkTask::Create(Benchmark benchmark,
                                                             std::vector<BenchmarkDataset> datasets,
                                                             int64_t most_samples) {
  std::unique_ptr<BenchmarkTask> task(new BenchmarkTask(std::move(benchmark), std::move(datasets)));
  for (std::size_t d = 0; d < task->datasets_.size(); ++d) LH_TRY(task->AddSamples(d, most_samples));
  return task;
}

Result<BenchmarkItem> BenchmarkTask::Read(const Place& place) const {
  const BenchmarkDataset& dataset = datasets_[place.dataset];
  LH_ASSIGN(const std::string text, dataset.lines.Line(place.line));
  const auto wrong = [&](const Error& error) {
    return InvalidInput(fmt::format("{}: {}", dataset.lines.PlaceOf(place.line), error.message));
  };
  const Result<Json> line = ParseLine(text);
  if (!line) return wrong(line.error());
  Result<BenchmarkItem> item = benchmark_.read(dataset, *line);
  if (!item) return wrong(item.error());
  return item;
}

Result<Sample> BenchmarkTask::SampleOf(const Place& place, const BenchmarkItem& item) const {
  const BenchmarkDataset& dataset = datasets_[place.dataset];
  LH_ASSIGN(const FilledPrompt prompt, FillPrompt(dataset.prompt, item.fields, "context"));
  // The hash stands for all that the file says of the sample; the place keeps equal lines apart.
  const std::string hash =
      TextHash(fmt::format("{}\n{}\n{}", prompt.text, item.references.dump(), dataset.max_new));
  Sample sample{.id = fmt::format("{}-{}-{}", dataset.file, place.line, hash),
                .document = fmt::format("{}-{}", dataset.file, TextHash(item.fields.at("context"))),
                .cell = {{"dataset", dataset.name}},
                .tokens = static_cast<int64_t>(prompt.text.size()) / kBytesPerToken};
  if (benchmark_.cut != CutRule::kNone) sample.tokens = std::min(sample.tokens, benchmark_.limit);
  sample.cell.update(item.cell);
  return sample;
}

Status BenchmarkTask::AddSamples(std::size_t d, int64_t most) {
  const BenchmarkDataset& dataset = datasets_[d];
  if (dataset.lines.n_lines() == 0) {
    return InvalidInput(fmt::format("{} is empty: it has no sample of {}", dataset.lines.name(), name()));
  }
  std::vector<std::vector<Sample>> documents;
  std::map<std::string, std::size_t> document_of;  // by hash
  const int64_t n = std::min(most, dataset.lines.n_lines());
  for (int64_t i = 0; i < n; ++i) {
    // Asking says again what is wrong with a damaged line: it fails alone.
    Sample sample{.id = fmt::format("{}-{}-damaged", dataset.file, i), .cell = {{"dataset", dataset.name}}};
    const Result<BenchmarkItem> item = Read({d, i});
    if (item) {
      LH_ASSIGN(sample, SampleOf({d, i}, *item));
    }
    places_[sample.id] = {d, i};
    const std::string& document = item ? sample.document : sample.id;
    const auto [at, is_new] = document_of.try_emplace(document, documents.size());
    if (is_new) documents.emplace_back();
    documents[at->second].push_back(std::move(sample));
  }
  for (std::vector<Sample>& questions : documents) {
    for (const Sample& question : questions) places_[question.id].shares_text = questions.size() > 1;
    std::ranges::move(questions, std::back_inserter(samples_));
  }
  return {};
}

Result<Question> BenchmarkTask::Ask(const Engine& engine, PromptForm form, const Sample& sample,
                                    const CancelToken* cancel) const {
  const auto place = places_.find(sample.id);
  LH_CHECK(place != places_.end());
  const BenchmarkDataset& dataset = datasets_[place->second.dataset];
  LH_ASSIGN(BenchmarkItem item, Read(place->second));
  LH_ASSIGN(const FilledPrompt prompt, FillPrompt(dataset.prompt, item.fields, "context"));
  int64_t around = 0;
  if (benchmark_.cut == CutRule::kSuffix && form == PromptForm::kChat && !dataset.plain) {
    LH_ASSIGN(around, TemplateTokens(engine, cancel));
  }
  LH_ASSIGN(CutPrompt cut, CutToLimit(engine.tokenizer(), prompt.text, prompt.marked_end, benchmark_.cut,
                                      benchmark_.limit, dataset.max_new, around, cancel));
  Question question;
  if (place->second.shares_text) {
    question.text.shared = std::move(cut.head);
    question.text.rest = std::move(cut.tail);
  } else {
    question.text.rest = cut.head + cut.tail;
  }
  question.plain = dataset.plain;
  question.max_new = dataset.max_new;
  question.stops = dataset.stops;
  question.references = std::move(item.references);
  question.references["dataset"] = dataset.name;
  question.references["dropped_tokens"] = cut.n_dropped;
  return question;
}

Score BenchmarkTask::Judge(const Question& question, const std::string& answer) const {
  const Json& references = question.references;
  return {.value = benchmark_.judge(references.at("dataset").get<std::string>(), references, answer),
          .values = {{"dropped_tokens", references.at("dropped_tokens")}}};
}

std::vector<std::string> ChosenDatasets(TaskOptions& options, const std::vector<std::string>& known) {
  std::vector<std::string> chosen = options.List("tasks");
  if (chosen == std::vector<std::string>{"all"}) return known;
  for (const std::string& name : chosen) {
    if (std::ranges::find(known, name) == known.end()) {
      options.Fail("tasks", fmt::format(" names {}, but there are {}", name, fmt::join(known, ", ")));
    }
  }
  if (chosen.empty()) options.Fail("tasks", " is empty");
  return chosen;
}

}  // namespace longheads
