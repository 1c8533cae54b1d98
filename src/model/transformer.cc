#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace longheads {
namespace {

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Radians per position where rotations count in 1 / unit of a token.
std::vector<double> PerUnit(std::vector<double> theta, int64_t unit) {
  for (double& value : theta) value /= static_cast<double>(unit);
  return theta;
}

// Whether no product of a layer needs its weights as floats.
bool HasInt8(const LayerWeights& layer) {
  return layer.q.integers && layer.k.integers && layer.v.integers && layer.o.integers &&
         layer.gate.integers && layer.up.integers && layer.down.integers;
}

Error Stopped() { return {ErrorKind::kCancelled, "stopped"}; }

}  // namespace

Result<KernelChoice> ChooseKernels(std::string_view backend) {
  if (backend == "auto") backend = AutoBackend();
  if (backend != "auto") LimitGemm(backend);
  KernelChoice choice;
  LH_ASSIGN(choice.attention, ChooseImplementation(AttentionImplementations(), backend, "attention"));
  LH_ASSIGN(choice.gemm, ChooseImplementation(GemmImplementations(), backend, "the prefill product"));
  LH_ASSIGN(choice.int8, ChooseImplementation(Int8Implementations(), backend, "the integer product"));
  LH_ASSIGN(choice.quantised,
            ChooseImplementation(QuantisedImplementations(), backend, "the quantised product"));
  LH_ASSIGN(choice.vector, ChooseImplementation(VectorImplementations(), backend, "vector work"));
  return choice;
}

// What flows through a layer, [n_tokens, ...].
struct Transformer::Activations {
  Buffer<float> x, queries, keys, values, attended;

  void Reserve(const ModelConfig& config, int64_t n) {
    x.Reserve(n * config.embed_dim);
    queries.Reserve(n * config.n_heads * config.head_dim);
    keys.Reserve(n * config.n_kv_heads * config.head_dim);
    values.Reserve(n * config.n_kv_heads * config.head_dim);
    attended.Reserve(n * config.n_heads * config.head_dim);
  }
  AttentionRows Rows(int64_t layer) {
    return {
        .layer = layer, .q = queries.data(), .k = keys.data(), .v = values.data(), .out = attended.data()};
  }
};

struct Transformer::Decode {
  Activations activations;         // of a batch
  Buffer<float> normed, gate, up;  // the same
  std::vector<AttendingSequence> sequences;
};

Transformer::Transformer(const ModelConfig& config, ModelWeights weights,
                         std::vector<LayerAttention> attention, const KernelChoice& kernels,
                         ComputeType compute, KvType kv_type, ThreadPool& pool, bool keep_packed)
    : config_(config),
      weights_(std::move(weights)),
      kernels_(kernels),
      compute_(compute),
      keep_packed_(keep_packed),
      pool_(pool),
      shape_{.n_heads = config.n_heads, .n_kv_heads = config.n_kv_heads, .head_dim = config.head_dim},
      kv_pool_(KvPool::Create({.n_layers = config.n_layers,
                               .n_kv_heads = config.n_kv_heads,
                               .head_dim = config.head_dim,
                               .type = kv_type},
                              *kernels.vector.table)),
      runner_(*kernels.attention.table, *kernels.vector.table, shape_, pool),
      linear_({.gemm = *kernels.gemm.table,
               .int8 = *kernels.int8.table,
               .quantised = *kernels.quantised.table,
               .vector = *kernels.vector.table},
              compute, keep_packed, pool),
      prefill_(std::make_unique<Activations>()),
      reserved_(kv_pool_),
      decode_(std::make_unique<Decode>()) {
  linear_.Prepare(weights_);
  SetAttention(std::move(attention));
}

Transformer::~Transformer() = default;

void Transformer::SetAttention(std::vector<LayerAttention> attention) {
  LH_CHECK(static_cast<int64_t>(attention.size()) == config_.n_layers);
  for (const LayerAttention& layer : attention) {  // one table serves all layers where frequencies follow
    LH_CHECK(!layer.following.at == !attention[0].following.at);
    LH_CHECK(!layer.following.at || layer.policy->Plane().unit == attention[0].policy->Plane().unit);
  }
  // All that may throw comes before what was there goes.
  std::vector<std::shared_ptr<RotationTable>> rotations;
  std::vector<float> scales;
  for (std::size_t i = 0; i < attention.size(); ++i) {
    const Frequencies& own = attention[i].frequencies;
    std::shared_ptr<RotationTable> table;
    const int64_t unit = attention[i].policy->Plane().unit;
    for (std::size_t other = 0; other < i && !table; ++other) {
      if (attention[other].frequencies.theta == own.theta && attention[other].policy->Plane().unit == unit) {
        table = rotations[other];
      }
    }
    if (!table) {
      table =
          std::make_shared<RotationTable>(PerUnit(own.theta, unit), config_.head_dim, config_.layout, 256);
    }
    rotations.push_back(std::move(table));
    const double scale = own.amplitude * own.amplitude / std::sqrt(static_cast<double>(config_.head_dim));
    scales.push_back(static_cast<float>(scale));
  }
  runner_.Forget();
  attention_ = std::move(attention);
  rotations_ = std::move(rotations);
  scales_ = std::move(scales);
}

SequenceState Transformer::NewSequence() const {
  SequenceState sequence{.kv = KvSequence(kv_pool_),
                         .policies = {},
                         .near = {},
                         .reserved = KvSharedReservation(kv_pool_),
                         .reserved_own = KvReservation(kv_pool_)};
  for (const LayerAttention& layer : attention_) {
    sequence.policies.push_back(layer.policy->NewState());
    // Where rotations follow the length, what was turned by older ones would not do.
    sequence.near.push_back(layer.following.at
                                ? nullptr
                                : NearKeys::For(*layer.policy, kv_pool_->geometry(), *kernels_.vector.table));
  }
  return sequence;
}

int64_t Transformer::MostPositions(std::size_t layer, int64_t n_tokens) const {
  const Policy& policy = *attention_[layer].policy;
  // Keys are rotated by less than the whole text, queries by less than the policy says.
  return std::max(policy.RotationBound(n_tokens), policy.Plane().unit * n_tokens);
}

// Text that grows by tokens has the old table beside the next one for a moment.
uint64_t Transformer::RotationBytes(int64_t n_tokens) const {
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < attention_.size(); ++i) {
    if (std::find(rotations_.begin(), rotations_.begin() + static_cast<std::ptrdiff_t>(i), rotations_[i]) !=
        rotations_.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;
    }
    bytes += 2 * RotationTable::Bytes(MostPositions(i, n_tokens), config_.head_dim);
  }
  return bytes;
}

Status Transformer::EnsureRotations(int64_t n_tokens) {
  for (std::size_t i = 0; i < attention_.size(); ++i) {
    const int64_t most = MostPositions(i, n_tokens);
    if (most > std::numeric_limits<int32_t>::max()) {
      return InvalidInput(fmt::format(
          "{} tokens are more than this method has positions for: it counts in 1/{} of a token, and "
          "up to {}",
          n_tokens, attention_[i].policy->Plane().unit, std::numeric_limits<int32_t>::max()));
    }
    rotations_[i]->Ensure(most);
  }
  const LayerAttention& layer = attention_[0];
  const auto known = [n_tokens](const auto& entry) { return entry.first == n_tokens; };
  if (!layer.following.at || std::ranges::any_of(following_, known)) return {};
  auto table =
      std::make_unique<RotationTable>(PerUnit(layer.following.at(n_tokens).theta, layer.policy->Plane().unit),
                                      config_.head_dim, config_.layout, rotations_[0]->n_positions());
  following_.emplace_back(n_tokens, std::move(table));
  return {};
}

void Transformer::ReserveFor(SequenceState& sequence, int64_t n_tokens) const {
  const int64_t n = RoundUp(n_tokens, kPageTokens);  // the same for the next tokens, for the most part
  const uint64_t rewritten = RewrittenBytes(n);
  sequence.reserved.Set(TableBytes(n) + PolicyBytes(n) - rewritten);
  // A sequence that was cut keeps the room for the near keys it had.
  sequence.reserved_own.Set(rewritten + std::max(NearBytes(n), sequence.NearBytes()));
}

int64_t Transformer::TokenBlock(int64_t n, const BlockFit& fit) const {
  // Every block reads the pages of what came before it once more, where they do not stay in memory: with
  // blocks of a 32nd of the text that is 32 times a token's keys and values for each token, some 100 to 200
  // MB/s beside the products of a small model on two cores, and the less the larger the model is
  // (engine/block_parts.h). But activations may not crowd out the pages, from what else is kept of the text
  // leaves them. Blocks follow the configuration alone: on every machine the same.
  constexpr int64_t kShareOfMemory = 4;
  int64_t at_least = kTokenBlock;
  if (kv_pool_->on_disk()) {
    const uint64_t kept = TableBytes(n) + PolicyBytes(n) + NearBytes(n);
    const int64_t left = fit.ram - static_cast<int64_t>(std::min(kept, static_cast<uint64_t>(fit.ram)));
    const int64_t most = left / kShareOfMemory / static_cast<int64_t>(MostActivationBytes());
    at_least = std::max(at_least, std::min(n / fit.parts, most) / kTokenBlock * kTokenBlock);
  }
  // Whole steps of the policies, which count from where a prompt's tokens begin. Layers that take steps take
  // equal ones.
  int64_t block = at_least;
  for (const LayerAttention& layer : attention_) {
    const int64_t step = layer.policy->StepTokens();
    if (step != Policy::kNoLimit) block = std::max<int64_t>(1, at_least / step) * step;
  }
  return block;
}

AttendingSequence Transformer::Attending(SequenceState& sequence, int64_t layer, int64_t n_end) const {
  const std::size_t at = static_cast<std::size_t>(layer);
  const RotationTable* rotations = rotations_[at].get();
  for (const auto& [n_tokens, table] : following_) {
    if (n_tokens == n_end) rotations = table.get();
  }
  return {.kv = &sequence.kv,
          .state = sequence.policies[at].get(),
          .first_state = sequence.policies[0].get(),
          .rotations = rotations,
          .scale = scales_[at],
          .amplitude = static_cast<float>(attention_[at].frequencies.amplitude),
          .keys_unrotated = attention_[at].following.turns_keys,
          .near = sequence.near[at].get()};
}

void Transformer::Embed(int32_t token, float* out) const {
  const int64_t row_bytes = static_cast<int64_t>(*BytesOf(weights_.embedding.type, config_.embed_dim));
  kernels_.quantised.table->dequantize(weights_.embedding.type, weights_.embedding.data + token * row_bytes,
                                       config_.embed_dim, out);
}

Status Transformer::Forward(std::span<const BatchItem> items, Phase phase, Outputs outputs,
                            const ForwardControl& control, std::vector<float>& hidden) {
  hidden.clear();
  following_.clear();
  const int64_t embed = config_.embed_dim;
  for (const BatchItem& item : items) {
    for (const int32_t token : item.tokens) {
      if (token < 0 || token >= config_.vocab_size) {
        return InvalidInput(
            fmt::format("token id {} is outside the vocabulary (0 .. {})", token, config_.vocab_size - 1));
      }
    }
    const int64_t n_end = item.sequence->size() + static_cast<int64_t>(item.tokens.size());
    LH_TRY(EnsureRotations(n_end));
    ReserveFor(*item.sequence, n_end);
  }
  const auto emit = [&](const float* x) {
    const std::size_t at = hidden.size();
    hidden.resize(at + static_cast<std::size_t>(embed));
    kernels_.vector.table->rms_norm(x, weights_.output_norm.data(), config_.rms_epsilon, embed,
                                    hidden.data() + at);
  };

  if (phase == Phase::kDecode) {
    LH_TRY(DecodeStep(items));
    for (std::size_t i = 0; i < items.size() && outputs != Outputs::kNone; ++i) {
      emit(decode_->activations.x.data() + static_cast<int64_t>(i) * embed);
    }
    return {};
  }

  int64_t total = 0;
  for (const BatchItem& item : items) total += static_cast<int64_t>(item.tokens.size());
  int64_t done = 0;
  for (const BatchItem& item : items) {
    const int64_t n = static_cast<int64_t>(item.tokens.size());
    for (int64_t begin = 0, n_here = 0; begin < n; begin += n_here) {
      n_here = std::min(TokenBlock(item.sequence->size()), n - begin);
      LH_TRY(PrefillBlock(*item.sequence, item.tokens, begin, begin + n_here, control,
                          static_cast<double>(done) / static_cast<double>(total),
                          static_cast<double>(n_here) / static_cast<double>(total)));
      done += n_here;
      const bool last = begin + n_here == n;
      if (outputs == Outputs::kAll) {
        for (int64_t t = 0; t < n_here; ++t) emit(prefill_->x.data() + t * embed);
      } else if (outputs == Outputs::kLast && last) {
        emit(prefill_->x.data() + (n_here - 1) * embed);
      }
    }
  }
  return {};
}

void Transformer::ReserveForBlock(int64_t n, int64_t behind) {
  // What a larger block left is for those to come, unless they may not be as large.
  if (reserved_.bytes() > BeyondUsualBlock(TokenBlock(behind))) {
    *prefill_ = {};
    linear_.ForgetRows();
    reserved_.Set(0);
  }
  reserved_.Set(std::max(reserved_.bytes(), BeyondUsualBlock(n)));
}

Status Transformer::PrefillBlock(SequenceState& sequence, std::span<const int32_t> prompt, int64_t begin,
                                 int64_t end, const ForwardControl& control, double done, double share) {
  Activations& a = *prefill_;
  const int64_t n = end - begin;
  const int64_t n_following = static_cast<int64_t>(prompt.size()) - end;
  const int64_t first = sequence.size();
  const int64_t embed = config_.embed_dim;
  ReserveForBlock(n, first);
  a.Reserve(config_, n);
  sequence.kv.Reserve(first + n, &pool_);

  constexpr int64_t kRows = 32;  // in one task
  pool_.Run((n + kRows - 1) / kRows, [&](int64_t task, int) {
    for (int64_t row = task * kRows; row < std::min(n, (task + 1) * kRows); ++row)
      Embed(prompt[static_cast<std::size_t>(begin + row)], a.x.data() + row * embed);
  });
  const auto norm_of_x = [&](const std::vector<float>& norm) {
    return LinearInput{.x = a.x.data(), .norm = norm.data(), .epsilon = config_.rms_epsilon};
  };

  for (int64_t layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    const LinearOutput projected[] = {
        {&weights.q, a.queries.data()}, {&weights.k, a.keys.data()}, {&weights.v, a.values.data()}};
    linear_.Project(norm_of_x(weights.attention_norm), projected, n, control.cancel);
    if (Cancelled(control.cancel)) return tl::unexpected<Error>(Stopped());
    AttendingSequence attending = Attending(sequence, layer, first + n + n_following);
    attending.n_preceding = begin;
    attending.n_following = n_following;
    const Policy& policy = *attention_[static_cast<std::size_t>(layer)].policy;
    if (!runner_.Prefill(policy, attending, a.Rows(layer), n, control.cancel)) {
      return tl::unexpected<Error>(Stopped());
    }
    linear_.AddProjection({.x = a.attended.data()}, {&weights.o, a.x.data()}, n, control.cancel);
    linear_.AddFeedForward(norm_of_x(weights.ffn_norm), weights, a.x.data(), n, control.cancel);

    if (Cancelled(control.cancel)) return tl::unexpected<Error>(Stopped());
    if (control.progress) {
      control.progress(done + share * static_cast<double>(layer + 1) / static_cast<double>(config_.n_layers));
    }
  }
  sequence.kv.Commit(first + n);
  return {};
}

Status Transformer::DecodeStep(std::span<const BatchItem> items) {
  const VectorKernels& vector = *kernels_.vector.table;
  const int64_t n = static_cast<int64_t>(items.size());
  const int64_t embed = config_.embed_dim;
  const int64_t ffn = config_.ffn_dim;
  auto& [a, normed, gate, up, sequences] = *decode_;
  a.Reserve(config_, n);
  normed.Reserve(n * embed);
  gate.Reserve(n * ffn);
  up.Reserve(n * ffn);
  for (int64_t i = 0; i < n; ++i) {
    const BatchItem& item = items[static_cast<std::size_t>(i)];
    LH_CHECK(item.tokens.size() == 1);
    item.sequence->kv.Reserve(item.sequence->size() + 1, &pool_);
    Embed(item.tokens[0], a.x.data() + i * embed);
  }

  const auto multiply = [&](std::initializer_list<LinearProduct> products) { linear_.Decode(products, n); };

  for (int64_t layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    const Policy& policy = *attention_[static_cast<std::size_t>(layer)].policy;
    for (int64_t i = 0; i < n; ++i) {
      vector.rms_norm(a.x.data() + i * embed, weights.attention_norm.data(), config_.rms_epsilon, embed,
                      normed.data() + i * embed);
    }
    multiply({{&weights.q, normed.data(), a.queries.data()},
              {&weights.k, normed.data(), a.keys.data()},
              {&weights.v, normed.data(), a.values.data()}});
    sequences.clear();
    for (const BatchItem& item : items) {
      sequences.push_back(Attending(*item.sequence, layer, item.sequence->size() + 1));
    }
    // What is read next, whatever was chosen.
    if (kv_pool_->on_disk()) {
      kv_pool_->while_waiting().Name(
          std::array{weights.o.bytes(), weights.gate.bytes(), weights.up.bytes(), weights.down.bytes()});
    }
    runner_.Decode(policy, sequences, a.Rows(layer));
    multiply({{&weights.o, a.attended.data(), normed.data()}});
    for (int64_t i = 0; i < n; ++i) {
      float* const x = a.x.data() + i * embed;
      float* const row = normed.data() + i * embed;
      vector.add(x, row, embed);
      vector.rms_norm(x, weights.ffn_norm.data(), config_.rms_epsilon, embed, row);
    }
    multiply({{&weights.gate, normed.data(), gate.data()}, {&weights.up, normed.data(), up.data()}});
    vector.silu_mul(gate.data(), up.data(), n * ffn);
    multiply({{&weights.down, gate.data(), normed.data()}});
    vector.add(a.x.data(), normed.data(), n * embed);
  }
  for (const BatchItem& item : items) item.sequence->kv.Commit(item.sequence->size() + 1);
  return {};
}

void Transformer::Logits(std::span<const float> hidden, std::span<float> logits) {
  const int64_t n_rows = static_cast<int64_t>(hidden.size()) / config_.embed_dim;
  LH_CHECK(static_cast<int64_t>(logits.size()) == n_rows * config_.vocab_size);
  const LinearProduct product = {&weights_.output, hidden.data(), logits.data()};
  linear_.Decode(std::span(&product, 1), n_rows);
}

uint64_t Transformer::TierBytes(int64_t n_tokens) const {
  if (!kv_pool_->on_disk()) return 0;
  const KvGeometry& geometry = kv_pool_->geometry();
  const int64_t unpacked =
      kv_pool_->layout().packs() ? pool_.n_threads() * (AttentionExecutor::kPagesTogether + 1) : 0;
  // Pages go to disk before memory, which holds other things too, is full of them.
  const bool is_short = geometry.BytesFor(n_tokens) <= static_cast<uint64_t>(kv_pool_->ram_bytes() / 2);
  const uint64_t beside = is_short ? 0 : kv_pool_->ImagesBytes() + kv_pool_->IdleBytes();
  return static_cast<uint64_t>(unpacked * geometry.PageStride()) + beside;
}

uint64_t Transformer::MostActivationBytes() const {
  const int64_t heads = config_.n_heads + config_.n_kv_heads;
  return sizeof(float) *
         static_cast<uint64_t>(2 * (config_.embed_dim + heads * config_.head_dim + config_.ffn_dim));
}

uint64_t Transformer::BlockBytes(int64_t n_tokens) const {
  const int64_t heads = config_.n_heads + config_.n_kv_heads;
  const int64_t floats = n_tokens * (config_.embed_dim + 2 * heads * config_.head_dim);
  const auto n_rows = static_cast<uint64_t>(RoundUp(n_tokens, Gemm::kTileRows));
  const uint64_t activations =
      sizeof(float) * static_cast<uint64_t>(floats) + n_rows * linear_.RowBytes(weights_);
  const bool all_int8 = compute_ == ComputeType::kInt8 && std::ranges::all_of(weights_.layers, HasInt8);
  if (all_int8 || keep_packed_) return activations;
  // The widest products' weights, packed.
  const int64_t q_dim = config_.n_heads * config_.head_dim;
  const int64_t kv_dim = config_.n_kv_heads * config_.head_dim;
  const int64_t widest =
      std::max((q_dim + 2 * kv_dim) * config_.embed_dim, 2 * config_.ffn_dim * config_.embed_dim);
  return activations + sizeof(float) * static_cast<uint64_t>(widest);
}

uint64_t Transformer::TableBytes(int64_t n_tokens) const {
  return static_cast<uint64_t>(kv_pool_->geometry().PagesFor(n_tokens)) * KvPool::kTableBytes;
}

uint64_t Transformer::PolicyBytes(int64_t n_tokens) const {
  uint64_t bytes = 0;
  for (const LayerAttention& layer : attention_) bytes += layer.policy->StateBytes(n_tokens);
  return bytes;
}

uint64_t Transformer::RewrittenBytes(int64_t n_tokens) const {
  uint64_t bytes = 0;
  for (const LayerAttention& layer : attention_) bytes += layer.policy->RewrittenBytes(n_tokens);
  return bytes;
}

uint64_t Transformer::KeptBytes(int64_t n_tokens) const {
  uint64_t bytes = RewrittenBytes(n_tokens);
  if (n_tokens <= kTokenBlock) return bytes;
  for (const LayerAttention& layer : attention_) bytes += layer.policy->LastBlockBytes(n_tokens);
  return bytes;
}

uint64_t Transformer::NearBytes(int64_t n_tokens) const {
  uint64_t bytes = 0;
  for (const LayerAttention& layer : attention_) {
    if (!layer.following.at) bytes += NearKeys::BytesFor(*layer.policy, kv_pool_->geometry(), n_tokens);
  }
  return bytes;
}

uint64_t Transformer::PreparedBytes() const {
  const uint64_t integers = TokensInIntegers(compute_) ? Int8Bytes(weights_) : 0;
  return integers + (keep_packed_ ? PackedBytes(weights_, compute_, *kernels_.gemm.table) : 0);
}

uint64_t Transformer::DecodeWeightBytes() const {
  return SumOverLinears(
      weights_, [](const LinearWeights& linear) { return *BytesOf(linear.w.type, linear.w.elements()); });
}

}  // namespace longheads
