#include "eval/ppl_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/csv.h"
#include "base/json.h"
#include "eval/size.h"
#include "eval/task_record.h"
#include "eval/text_hash.h"
#include "formats/input_file.h"
#include "formats/output_file.h"

namespace longheads {
namespace {

constexpr int64_t kMostSamples = 1000;
constexpr int64_t kRows = 64;  // whose logits are there at a time

// *.txt in the order of their names.
Result<std::vector<TextDocument>> LoadDocuments(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  if (error) return MakeError(ErrorKind::kIo, fmt::format("--documents {}: {}", folder, error.message()));
  if (files.empty()) {
    return InvalidInput(fmt::format("--documents {} has no *.txt: every such file is a document", folder));
  }
  std::ranges::sort(files);
  std::vector<TextDocument> documents;
  for (const fs::path& file : files) {
    LH_ASSIGN(std::string text, ReadUtf8File(file.string()));
    documents.push_back({.name = file.filename().string(), .text = std::move(text)});
  }
  return documents;
}

std::vector<TokenId> Beginning(const Engine& engine) {
  const Vocabulary& vocabulary = engine.tokenizer().vocabulary();
  return vocabulary.add_bos ? std::vector<TokenId>{vocabulary.bos} : std::vector<TokenId>{};
}

// Negative log-likelihoods of targets, [n_rows], each given its row of hidden [n_rows, embed_dim].
Status AddScores(Engine& engine, std::span<const float> hidden, std::span<const TokenId> targets,
                 PplScore& score) {
  const std::size_t n_known = engine.tokenizer().vocabulary().tokens.size();  // the rest is padding
  const std::size_t dim = targets.empty() ? 0 : hidden.size() / targets.size();
  for (std::size_t i = 0; i < targets.size(); i += Size(kRows)) {
    const std::size_t n = std::min(Size(kRows), targets.size() - i);
    const std::vector<float> logits = engine.Logits(hidden.subspan(i * dim, n * dim));
    const std::size_t row = logits.size() / n;
    for (std::size_t j = 0; j < n; ++j) {
      const double nll = NegativeLogLikelihood(std::span(logits).subspan(j * row, n_known), targets[i + j]);
      if (!std::isfinite(nll)) return Unsupported("the model's logits are not finite");
      score.Add(nll);
    }
  }
  return {};
}

// Progress over several calls: of `total` tokens, those before `done` are read.
std::function<void(double)> Part(const std::function<void(double)>& whole, int64_t done, int64_t n,
                                 int64_t total) {
  if (!whole) return {};
  return [=](double share) {
    whole((static_cast<double>(done) + share * static_cast<double>(n)) / static_cast<double>(total));
  };
}

// All documents of one setup and length together.
struct Total {
  const TaskRecord* first;
  int64_t n_documents = 0;
  double tokens = 0, nll = 0, windows = 0, nll_of_windows = 0;

  void Add(const TaskRecord& r) {
    const Json& values = r.measured.values;
    const double n = values.at("scored").get<double>();
    ++n_documents;
    tokens += n;
    nll += n * r.measured.score;
    if (!values.contains("windows")) return;
    const double n_windows = values.at("windows").get<double>();
    windows += n_windows;
    nll_of_windows += n_windows * values.at("nll_of_windows").get<double>();
  }
};

std::vector<Total> TotalsOf(std::span<const TaskRecord> records) {
  std::vector<Total> totals;
  for (const TaskRecord& r : records) {
    if (!r.failed.empty()) continue;
    const auto same = [&](const Total& total) {
      return total.first->fingerprint == r.fingerprint && total.first->sample.cell == r.sample.cell;
    };
    auto total = std::ranges::find_if(totals, same);
    if (total == totals.end()) total = totals.insert(total, Total{.first = &r});
    total->Add(r);
  }
  return totals;
}

std::string TotalsRow(const Total& t) {
  const TaskSetup& setup = t.first->setup;
  const bool stream = setup.options.at("mode") == "stream";
  return fmt::format("{},{},{},{},{},{:.0f},{},{:.4f},{},{},{},{},{},{}\n", CsvField(setup.attention),
                     t.first->sample.cell.at("length").get<int64_t>(),
                     setup.options.at("mode").get<std::string>(), setup.options.at("stride").get<int64_t>(),
                     t.n_documents, t.tokens, stream ? "" : fmt::format("{:.0f}", t.windows),
                     std::exp(t.nll / t.tokens),
                     stream ? "" : fmt::format("{:.4f}", std::exp(t.nll_of_windows / t.windows)),
                     CsvField(setup.model.model), setup.model.compute, setup.model.kv,
                     CsvField(JsonLine(setup.options)), t.first->fingerprint);
}

}  // namespace

std::vector<PplWindow> SlidingWindows(int64_t n_document, int64_t window, int64_t stride) {
  std::vector<PplWindow> windows;
  int64_t scored = 0;
  for (int64_t begin = 0; scored < n_document; begin += stride) {
    const int64_t end = std::min(begin + window, n_document);
    windows.push_back({.begin = begin, .score = scored, .end = end});
    scored = end;
  }
  return windows;
}

void WindowAverages::Add(const PplScore& window) {
  tokens_.Add(window);
  sum_of_means_ += window.mean();
  ++n_windows_;
}

PplWindowsTask::PplWindowsTask(Haystack text, std::vector<TextDocument> documents, PplWindowsOptions options)
    : text_(std::move(text)), documents_(std::move(documents)), options_(std::move(options)) {
  const int64_t n = documents_.empty() ? options_.n_samples : static_cast<int64_t>(documents_.size());
  for (int64_t s = 0; s < n; ++s) {
    const std::string name = documents_.empty() ? fmt::format("piece {}", s) : documents_[Size(s)].name;
    for (const int64_t length : options_.lengths) {
      // How many windows a document has shows once it is tokens; with --tokens it can be said before.
      int64_t tokens = options_.stream ? length : 0;
      if (!options_.stream && options_.n_tokens > 0) {
        for (const PplWindow& w : SlidingWindows(options_.n_tokens, length, options_.stride))
          tokens += w.end - w.begin;
      }
      samples_.push_back({.id = fmt::format("{}-{}", name, length),
                          .document = name,
                          .cell = {{"length", length}},
                          .tokens = tokens,
                          .longest = length,
                          .number = s});
    }
  }
}

std::vector<std::string> PplWindowsTask::shown() const {
  if (options_.stream) return {"ppl"};
  return {"ppl", "ppl_of_windows"};
}

Json PplWindowsTask::Setup() const {
  // Before 2 a stream had an average over its calls, in which one of a token counted as much as one of S.
  Json setup = {{"version", options_.stream ? 2 : 1},
                {"mode", options_.stream ? "stream" : "sliding"},
                {"stride", options_.stride}};
  if (!options_.stream) setup["tokens"] = options_.n_tokens;
  if (documents_.empty()) {
    setup["text"] = text_.name();
    setup["text_hash"] = text_.hash();
  } else {
    std::string all;
    for (const TextDocument& document : documents_)
      all += document.name + '\n' + TextHash(document.text) + '\n';
    setup["documents"] = documents_.size();
    setup["text_hash"] = TextHash(all);
  }
  return setup;
}

Status PplWindowsTask::Check(const Engine&, PromptForm, const CancelToken*) const { return {}; }

Result<std::vector<TokenId>> PplWindowsTask::Tokens(const Engine& engine, int64_t number, int64_t length,
                                                    const CancelToken* cancel) const {
  const int64_t most =
      options_.stream ? length - static_cast<int64_t>(Beginning(engine).size()) : options_.n_tokens;
  if (documents_.empty()) return text_.Tokens(engine.tokenizer(), number, most, cancel);
  LH_ASSIGN(std::vector<TokenId> tokens,
            engine.tokenizer().Encode(documents_[Size(number)].text, {.cancel = cancel}));
  if (most > 0 && static_cast<int64_t>(tokens.size()) > most) tokens.resize(Size(most));
  return tokens;
}

Result<WindowAverages> PplWindowsTask::Slide(const TaskContext& context, std::span<const TokenId> tokens,
                                             int64_t window) const {
  Engine& engine = context.engine;
  const std::vector<TokenId> first = Beginning(engine);
  const int64_t n_first = static_cast<int64_t>(first.size());
  const std::vector<PplWindow> windows =
      SlidingWindows(static_cast<int64_t>(tokens.size()), window - n_first, options_.stride);
  int64_t total = 0, done = 0;
  for (const PplWindow& w : windows) total += n_first + w.end - w.begin;
  const auto progress = context.on_prefill ? context.on_prefill(total) : std::function<void(double)>();
  WindowAverages averages;
  for (const PplWindow& w : windows) {
    std::vector<TokenId> read = first;
    read.insert(read.end(), tokens.begin() + w.begin, tokens.begin() + w.end);
    const int64_t n_read = static_cast<int64_t>(read.size());
    Session session = engine.NewSession();
    LH_ASSIGN(const std::vector<float> hidden,
              engine.Prefill(session, read, Outputs::kAll,
                             {.cancel = context.cancel, .progress = Part(progress, done, n_read, total)}));
    done += n_read;
    // What stands before the first of these tokens predicts it; before the first of all nothing does.
    const int64_t begin = std::max<int64_t>(n_first + w.score - w.begin, 1);
    const std::size_t dim = hidden.size() / read.size();
    const auto rows = std::span(hidden).subspan(Size(begin - 1) * dim, Size(n_read - begin) * dim);
    PplScore score;
    LH_TRY(AddScores(engine, rows, std::span(read).subspan(Size(begin)), score));
    if (score.n_tokens > 0) averages.Add(score);
  }
  return averages;
}

Result<PplScore> PplWindowsTask::Stream(const TaskContext& context, std::span<const TokenId> tokens) const {
  Engine& engine = context.engine;
  std::vector<TokenId> read = Beginning(engine);
  read.insert(read.end(), tokens.begin(), tokens.end());
  const int64_t total = static_cast<int64_t>(read.size());
  const auto progress = context.on_prefill ? context.on_prefill(total) : std::function<void(double)>();
  Session session = engine.NewSession();
  PplScore score;
  for (int64_t begin = 0; begin < total; begin += options_.stride) {
    const int64_t n = std::min(options_.stride, total - begin);
    LH_ASSIGN(const std::vector<float> hidden,
              engine.Prefill(session, std::span(read).subspan(Size(begin), Size(n)), Outputs::kAll,
                             {.cancel = context.cancel, .progress = Part(progress, begin, n, total)}));
    // The last token of all predicts what is not there.
    const int64_t n_scored = std::min(n, total - begin - 1);
    const std::size_t dim = hidden.size() / Size(n);
    LH_TRY(AddScores(engine, std::span(hidden).first(Size(n_scored) * dim),
                     std::span(read).subspan(Size(begin + 1), Size(n_scored)), score));
  }
  return score;
}

Result<SampleOutcome> PplWindowsTask::Measure(const TaskContext& context, const Sample& sample) {
  const int64_t length = sample.cell.at("length").get<int64_t>();
  LH_ASSIGN(const std::vector<TokenId> tokens, Tokens(context.engine, sample.number, length, context.cancel));
  if (tokens.size() < 2) return InvalidInput(fmt::format("{} has fewer than two tokens", sample.document));
  LH_TRY(context.engine.ExpectText(length));
  SampleOutcome measured{.tokens = static_cast<int64_t>(tokens.size())};
  PplScore score;
  if (options_.stream) {
    LH_ASSIGN(score, Stream(context, tokens));
  } else {
    LH_ASSIGN(const WindowAverages averages, Slide(context, tokens, length));
    score = averages.tokens();
    measured.values = {{"ppl_of_windows", std::exp(averages.mean_of_windows())},
                       {"nll_of_windows", averages.mean_of_windows()},
                       {"windows", averages.n_windows()}};
  }
  measured.score = score.mean();
  measured.values["ppl"] = score.perplexity();
  measured.values["scored"] = score.n_tokens;
  return measured;
}

Status PplWindowsTask::Export(const std::string& directory, std::span<const TaskRecord> run) const {
  LH_ASSIGN(const std::vector<TaskRecord> records, AllRecords(directory, name(), run));
  std::string csv =
      "attn,length,mode,stride,documents,tokens,windows,ppl,ppl_of_windows,model,compute,kv,options,"
      "fingerprint\n";
  for (const Total& total : TotalsOf(records)) csv += TotalsRow(total);
  return WriteFile((std::filesystem::path(directory) / "ppl-windows-totals.csv").string(), csv);
}

TaskKind PplWindowsKind() {
  return {
      .name = "ppl-windows",
      .summary = "Perplexity of documents as the papers measure it: a sliding window, or one pass",
      .options = {{"lengths", "T,T,...", "4k,8k",
                   "tokens of a window; of what is read of each document with --mode stream; k is 1024"},
                  {"mode", "sliding|stream", "sliding",
                   "sliding: every window is read anew; stream: each document is read once"},
                  {"stride", "S", "256", "tokens by which the window moves on; stream: tokens of a call"},
                  {"tokens", "N", "16k", "sliding: tokens of each document; 0: all of them (of --documents)"},
                  {"documents", "FOLDER", "", "every *.txt in it is a document, such as PG19's test set"},
                  {"samples", "N", "1", "pieces of the haystack, where there are no documents"},
                  Haystack::Option()},
      .notes =
          "The score is the mean of -log p over the tokens, in nats; 'ppl' its exponential and "
          "'ppl_of_windows' that "
          "of the\nmean of the windows' means, which published programs give (a stream has none); both are "
          "means over documents "
          "here. "
          "Over all\ndocuments together they stand in DIR/ppl-windows-totals.csv. A window is a prompt: "
          "methods "
          "that choose in decode\nalone (quest) are full attention in it. 'longheads eval ppl' reads a text "
          "once for "
          "all lengths and scores what\nis decoded.\n\nExample:\n  longheads eval ppl-windows --attn "
          "'full;longheads' --lengths 4k,16k --documents pg19/test --tokens 0 --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 16;
        PplWindowsOptions options{.lengths = o.Counts("lengths", kShortest, kLongestText),
                                  .stream = o.Choice("mode") == "stream",
                                  .stride = o.Count("stride", 1, kLongestText),
                                  .n_tokens = o.Count("tokens", 0, kLongestText),
                                  .n_samples = o.Count("samples", 1, kMostSamples)};
        LH_TRY(o.status());
        const int64_t shortest = *std::ranges::min_element(options.lengths);
        const std::string folder = o.Text("documents");
        if (!options.stream && options.stride >= shortest) {
          return InvalidInput(
              fmt::format("--stride is {}, but must be less than the shortest of --lengths, {}",
                          options.stride, shortest));
        }
        if (!folder.empty()) {
          LH_ASSIGN(std::vector<TextDocument> documents, LoadDocuments(folder));
          return std::make_unique<PplWindowsTask>(Haystack::FromText("", ""), std::move(documents),
                                                  std::move(options));
        }
        if (!options.stream && options.n_tokens == 0) {
          return InvalidInput("--tokens 0 takes whole documents, and --documents names none");
        }
        LH_ASSIGN(Haystack text, Haystack::Load(o.Text("haystack")));
        return std::make_unique<PplWindowsTask>(std::move(text), std::vector<TextDocument>{},
                                                std::move(options));
      }};
}

}  // namespace longheads
