#include "eval/esa_recall_task.h"

#include <fmt/format.h>

#include "engine/esa_compression.h"

namespace longheads {
namespace {

constexpr int64_t kMostSamples = 1000;
constexpr int64_t kDim = 128;  // of --attn esa

}  // namespace

EsaRecallTask::EsaRecallTask(Haystack text, EsaRecallTaskOptions options)
    : text_(std::move(text)), options_(options) {
  for (int64_t s = 0; s < options_.n_samples; ++s) {
    samples_.push_back({.id = fmt::format("{}-{}-{}", options_.from, options_.to, s),
                        .cell = {{"to", options_.to}},
                        .tokens = options_.to,
                        .number = s});
  }
}

Json EsaRecallTask::Setup() const {
  return {{"version", 1}, {"text", text_.name()}, {"text_hash", text_.hash()}, {"k", options_.k}};
}

Result<SampleOutcome> EsaRecallTask::Measure(const TaskContext& context, const Sample& sample) {
  const Tokenizer& tokenizer = context.engine.tokenizer();
  LH_ASSIGN(const std::vector<TokenId> tokens,
            text_.Tokens(tokenizer, sample.number, options_.to, context.cancel));
  const auto progress = context.on_prefill ? context.on_prefill(options_.to) : std::function<void(double)>();
  LH_ASSIGN(const EsaRecallReport report,
            MeasureEsaRecall({.engine = context.engine_options,
                              .text = tokenizer.Decode(tokens, /*special=*/false),
                              .k = options_.k,
                              .from = options_.from,
                              .n_tokens = options_.to,
                              .cancel = context.cancel,
                              .progress = [&](double share, int64_t) {
                                if (progress) progress(share);
                              }}));
  SampleOutcome measured{.tokens = report.n_tokens};
  measured.values["by_chance"] = report.by_chance;
  for (std::size_t i = 0; i < report.found.size(); ++i) {
    if (report.found[i].dim > kDim) break;
    measured.score = report.found[i].share;  // of the most dimensions up to 128
    measured.values[fmt::format("dim_{}", report.found[i].dim)] = report.found[i].share;
    measured.values["dim"] = report.found[i].dim;
    for (std::size_t layer = 0; layer < report.layers.size(); ++layer) {
      if (report.layers[layer].empty()) continue;
      measured.values[fmt::format("layer_{}", layer)] = report.layers[layer][i];
    }
  }
  return measured;
}

TaskKind EsaRecallKind() {
  return {.name = "esa-recall",
          .summary = "What compressed scores find of ESA's exact choice, layer by layer (ESA, Figure 2)",
          .options = {{"from", "N", "6000", "first position whose query is compared; k is 1024"},
                      {"to", "N", "8000", "where the text ends"},
                      {"choose", "K", "0", "tokens that are chosen; 0: as many as --attn esa chooses"},
                      {"samples", "N", "1", "pieces of the text"},
                      Haystack::Option()},
          .notes =
              "--attn is always esa, with the compression that 'longheads fit-esa' fitted. Figure 2 is "
              "--from 23000 "
              "--to 25000\n--choose 2000. Records and the CSV have the recall of each layer (layer_0, ...) "
              "and by "
              "numbers of dimensions.\n\nExample:\n  longheads eval esa-recall --from 7000 --to 8000 "
              "--choose 500 "
              "--out results",
          .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
            const EsaRecallTaskOptions options{.from = o.Count("from", 1, kLongestText),
                                               .to = o.Count("to", 2, kLongestText),
                                               .k = o.Count("choose", 0, kLongestText),
                                               .n_samples = o.Count("samples", 1, kMostSamples)};
            if (options.to <= options.from) o.Fail("to", " must lie behind --from");
            LH_TRY(o.status());
            LH_ASSIGN(Haystack text, Haystack::Load(o.Text("haystack")));
            return std::make_unique<EsaRecallTask>(std::move(text), options);
          }};
}

}  // namespace longheads
