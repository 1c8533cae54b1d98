#include "engine/selection_trace.h"

#include <filesystem>

namespace longheads {
namespace {

TraceTokens TextOf(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  TraceTokens text;
  for (const TokenId token : tokens) text.Add(token, tokenizer.TokenBytes(token, /*special=*/true));
  return text;
}

HeadShape ShapeOf(const TraceHeader& header) {
  return {.n_heads = header.n_heads, .n_kv_heads = header.n_kv_heads, .head_dim = 0};
}

}  // namespace

Result<std::unique_ptr<SelectionTrace>> SelectionTrace::Start(Engine& engine,
                                                              const SelectionTraceOptions& options,
                                                              std::span<const TokenId> prompt) {
  const TraceTokens text = TextOf(engine.tokenizer(), engine.ModelTokens(prompt));
  const std::optional<BlockGrid> blocks = engine.SelectionBlocks();
  // What is counted of a prompt is counted in coarser columns than what is chosen, since it would fill the
  // file; where nothing is, columns are the chunks, so that who looks at them sees one at a time.
  constexpr int64_t kLeastChunk = 16;
  const bool as_chosen = blocks && !options.prompt && blocks->tokens >= kLeastChunk;
  TraceHeader header{.program = options.program,
                     .model = std::filesystem::path(engine.file().name()).filename(),
                     .attention = options.attention,
                     .n_layers = engine.config().n_layers,
                     .n_heads = engine.config().n_heads,
                     .n_kv_heads = engine.config().n_kv_heads,
                     .window = engine.config().trained_window,
                     .prompt_tokens = static_cast<int64_t>(text.ids.size()),
                     .compute = std::string(NameOf(engine.compute())),
                     .kv_type = NameOf(engine.kv_type()),
                     .blocks = blocks,
                     .columns = as_chosen ? *blocks : CountColumns(blocks),
                     .needle = {}};
  if (!options.needle.empty()) header.needle = FindText(text.text, options.needle);
  LH_ASSIGN(TraceWriter writer, TraceWriter::Create(options.path, header));
  writer.AddTokens(text);
  return std::unique_ptr<SelectionTrace>(
      new SelectionTrace(engine, header, prompt, options.prompt, std::move(writer)));
}

SelectionTrace::SelectionTrace(Engine& engine, const TraceHeader& header, std::span<const TokenId> prompt,
                               bool count, TraceWriter writer)
    : engine_(engine),
      prompt_(prompt.begin(), prompt.end()),
      writer_(std::move(writer)),
      recorder_(header.n_layers, ShapeOf(header), header.prompt_tokens - 1,
                [this](const TokenSelection& token) { writer_.AddSelection(token); }) {
  if (count) {
    counter_.emplace(SelectionCounter::Options{.n_layers = header.n_layers,
                                               .shape = ShapeOf(header),
                                               .end = header.prompt_tokens,
                                               .blocks = header.blocks.value_or(BlockGrid{}),
                                               .columns = header.columns},
                     [this](const PromptCounts& counts) { writer_.AddCounts(counts); });
  }
  engine_.SetObserver(this);
}

SelectionTrace::~SelectionTrace() { engine_.SetObserver(nullptr); }

void SelectionTrace::OnChoice(const BlockChoice& choice) {
  recorder_.OnChoice(choice);
  if (counter_) counter_->OnChoice(choice);
}

void SelectionTrace::OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) {
  recorder_.OnPlan(policy, block, phase, plan);
  if (counter_) counter_->OnPlan(policy, block, phase, plan);
}

void SelectionTrace::OnLayerDone(int64_t layer) {
  recorder_.OnLayerDone(layer);
  if (counter_) counter_->OnLayerDone(layer);
}

Status SelectionTrace::Finish(std::span<const TokenId> answer) {
  engine_.SetObserver(nullptr);
  const std::size_t before =
      static_cast<std::size_t>(engine_.ModelSize(static_cast<int64_t>(prompt_.size())));
  prompt_.insert(prompt_.end(), answer.begin(), answer.end());
  const std::vector<TokenId> all = engine_.ModelTokens(prompt_);
  writer_.AddTokens(TextOf(engine_.tokenizer(), std::span(all).subspan(before)));
  return writer_.Finish();
}

}  // namespace longheads
