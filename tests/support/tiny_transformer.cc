#include "tests/support/tiny_transformer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <random>

namespace longheads {
namespace {

template <typename T>
T Must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", result.error().message);
    std::abort();
  }
  return std::move(*result);
}

void Append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<std::byte> FileOf(const TinyTransformerOptions& options) {
  GgufBuilder builder = TinyLlamaBuilder(options.model);
  if (options.add_to_file) options.add_to_file(builder);
  return builder.Build();
}

}  // namespace

TinyTransformer::TinyTransformer(const TinyTransformerOptions& options) : bytes_(FileOf(options)) {
  file_ = std::make_unique<GgufFile>(Must(GgufFile::Parse(bytes_, "tiny")));
  const ModelConfig config = Must(ReadConfig(*file_));
  const AttentionModel model{
      .shape = {.n_heads = config.n_heads, .n_kv_heads = config.n_kv_heads, .head_dim = config.head_dim},
      .n_layers = config.n_layers,
      .vocab_size = config.vocab_size,
      .trained_window = config.trained_window,
      .layout = config.layout,
      .rope = config.rope,
      .trained = Must(DeclaredFrequencies(config.rope, config.trained_window)),
      .text_tokens = options.text_tokens};
  pool_ = std::make_unique<ThreadPool>(options.threads);
  transformer_ = std::make_unique<Transformer>(
      config, Must(ReadWeights(*file_, config)), Must(MakeAttention(options.attention, model)),
      Must(ChooseKernels(options.backend)), options.compute, options.kv_type, *pool_, options.keep_packed);
}

void TinyTransformer::Blank(const std::string& tensor) {
  const TensorView* const view = file_->FindTensor(tensor);
  LH_CHECK(view != nullptr);
  std::memset(bytes_.data() + (view->data - bytes_.data()), 0, *BytesOf(view->type, view->elements()));
}

std::vector<float> TinyTransformer::Prefill(SequenceState& sequence, std::span<const int32_t> tokens,
                                            std::span<const int64_t> blocks) {
  const int64_t all[] = {static_cast<int64_t>(tokens.size())};
  std::vector<float> hidden, here;
  std::size_t at = 0;
  for (const int64_t n : blocks.empty() ? std::span<const int64_t>(all) : blocks) {
    const BatchItem item{.sequence = &sequence, .tokens = tokens.subspan(at, static_cast<std::size_t>(n))};
    const Status status =
        transformer_->Forward(std::span(&item, 1), Phase::kPrefill, Outputs::kAll, {}, here);
    LH_CHECK(status.has_value());
    Append(hidden, here);
    at += static_cast<std::size_t>(n);
  }
  LH_CHECK(at == tokens.size());
  return hidden;
}

std::vector<float> TinyTransformer::Decode(SequenceState& sequence, std::span<const int32_t> tokens) {
  std::vector<float> hidden, here;
  for (const int32_t& token : tokens) {
    const BatchItem item{.sequence = &sequence, .tokens = std::span(&token, 1)};
    const Status status =
        transformer_->Forward(std::span(&item, 1), Phase::kDecode, Outputs::kLast, {}, here);
    LH_CHECK(status.has_value());
    Append(hidden, here);
  }
  return hidden;
}

std::vector<float> TinyTransformer::Logits(std::span<const float> hidden) {
  const ModelConfig& config = transformer_->config();
  std::vector<float> logits(hidden.size() / static_cast<std::size_t>(config.embed_dim) *
                            static_cast<std::size_t>(config.vocab_size));
  transformer_->Logits(hidden, logits);
  return logits;
}

std::vector<int32_t> TinyTokens(int64_t n, int64_t vocab_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace longheads
