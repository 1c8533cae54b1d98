#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace longheads {
namespace {

constexpr int64_t kTileRows = Gemm::kTileRows;
constexpr int64_t kGemvRows = 64;    // rows of a weight matrix that one decode task takes
constexpr int64_t kLogitRows = 512;  // the same for the vocabulary

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Radians per position where rotations count in 1 / unit of a token.
std::vector<double> PerUnit(std::vector<double> theta, int64_t unit) {
  for (double& value : theta) value /= static_cast<double>(unit);
  return theta;
}

Error Stopped() { return {ErrorKind::kCancelled, "stopped"}; }

}  // namespace

Result<KernelChoice> ChooseKernels(std::string_view backend) {
  if (backend != "auto") LimitGemm(backend);
  KernelChoice choice;
  LH_ASSIGN(choice.attention, ChooseImplementation(AttentionImplementations(), backend, "attention"));
  LH_ASSIGN(choice.gemm, ChooseImplementation(GemmImplementations(), backend, "the prefill product"));
  LH_ASSIGN(choice.quantised,
            ChooseImplementation(QuantisedImplementations(), backend, "the quantised product"));
  LH_ASSIGN(choice.vector, ChooseImplementation(VectorImplementations(), backend, "vector work"));
  return choice;
}

// One linear layer's product in prefill, with this layer's weights packed.
struct PreparedLinear {
  const LinearWeights* weights = nullptr;
  const Gemm* gemm = nullptr;
  std::byte* packed = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
};

// What flows through a layer, [n_tokens, ...].
struct Transformer::Activations {
  Buffer<float> x, normed, queries, keys, values, attended, gate, up;

  void Reserve(const ModelConfig& config, int64_t n) {
    x.Reserve(n * config.embed_dim);
    normed.Reserve(n * config.embed_dim);
    queries.Reserve(n * config.n_heads * config.head_dim);
    keys.Reserve(n * config.n_kv_heads * config.head_dim);
    values.Reserve(n * config.n_kv_heads * config.head_dim);
    attended.Reserve(n * config.n_heads * config.head_dim);
    gate.Reserve(n * config.ffn_dim);
    up.Reserve(n * config.ffn_dim);
  }
  AttentionRows Rows(int64_t layer) {
    return {
        .layer = layer, .q = queries.data(), .k = keys.data(), .v = values.data(), .out = attended.data()};
  }
};

struct Transformer::Prefill {
  // One Gemm per shape of weights, by the role it plays.
  std::unique_ptr<Gemm> q, kv, o, gate_up, down;
  std::vector<Buffer<float>> panel;  // per thread: one panel's weights de-quantised, [kPanel, widest k]
  Buffer<std::byte> packed;          // one layer's weights
  Activations activations;           // of a token block, rounded up to tiles

  void MakeGemms(const ModelConfig& config, const KernelChoice& kernels, ComputeType compute, int n_threads);
  // The products of n rows, n at most what the activations hold; with biases. Rows are unfinished where it
  // was cancelled.
  void Multiply(std::span<PreparedLinear> linears, int64_t n, const KernelChoice& kernels, ThreadPool& pool,
                const CancelToken* cancel);

 private:
  void Pack(std::span<PreparedLinear> linears, const KernelChoice& kernels, ThreadPool& pool);
};

struct Transformer::Decode {
  Activations activations;  // of a batch
  std::vector<AttendingSequence> sequences;
};

Transformer::Transformer(const ModelConfig& config, ModelWeights weights,
                         std::vector<LayerAttention> attention, const KernelChoice& kernels,
                         ComputeType compute, KvType kv_type, ThreadPool& pool)
    : config_(config),
      weights_(std::move(weights)),
      kernels_(kernels),
      compute_(compute),
      pool_(pool),
      shape_{.n_heads = config.n_heads, .n_kv_heads = config.n_kv_heads, .head_dim = config.head_dim},
      kv_pool_(KvPool::Create({.n_layers = config.n_layers,
                               .n_kv_heads = config.n_kv_heads,
                               .head_dim = config.head_dim,
                               .type = kv_type},
                              *kernels.vector.table)),
      runner_(*kernels.attention.table, *kernels.vector.table, shape_, pool),
      prefill_(std::make_unique<Prefill>()),
      decode_(std::make_unique<Decode>()) {
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
  SequenceState sequence{.kv = KvSequence(kv_pool_), .policies = {}};
  for (const LayerAttention& layer : attention_) sequence.policies.push_back(layer.policy->NewState());
  return sequence;
}

void Transformer::EnsureRotations(int64_t n_tokens) {
  for (std::size_t i = 0; i < attention_.size(); ++i) {
    const Policy& policy = *attention_[i].policy;
    // Keys are rotated by less than the whole text, queries by less than the policy says.
    rotations_[i]->Ensure(std::max(policy.RotationBound(n_tokens), policy.Plane().unit * n_tokens));
  }
  const LayerAttention& layer = attention_[0];
  const auto known = [n_tokens](const auto& entry) { return entry.first == n_tokens; };
  if (!layer.following.at || std::ranges::any_of(following_, known)) return;
  auto table =
      std::make_unique<RotationTable>(PerUnit(layer.following.at(n_tokens).theta, layer.policy->Plane().unit),
                                      config_.head_dim, config_.layout, rotations_[0]->n_positions());
  following_.emplace_back(n_tokens, std::move(table));
}

int64_t Transformer::TokenBlock() const {
  // Whole steps of the policies, which count from where a prompt's tokens begin. Layers that take steps take
  // equal ones.
  int64_t block = kTokenBlock;
  for (const LayerAttention& layer : attention_) {
    const int64_t step = layer.policy->StepTokens();
    if (step != Policy::kNoLimit) block = std::max<int64_t>(1, kTokenBlock / step) * step;
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
          .keys_unrotated = attention_[at].following.turns_keys};
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
    EnsureRotations(item.sequence->size() + static_cast<int64_t>(item.tokens.size()));
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
  const int64_t token_block = TokenBlock();
  int64_t done = 0;
  for (const BatchItem& item : items) {
    const int64_t n = static_cast<int64_t>(item.tokens.size());
    for (int64_t begin = 0; begin < n; begin += token_block) {
      const int64_t n_here = std::min(token_block, n - begin);
      LH_TRY(PrefillBlock(*item.sequence, item.tokens, begin, begin + n_here, control,
                          static_cast<double>(done) / static_cast<double>(total),
                          static_cast<double>(n_here) / static_cast<double>(total)));
      done += n_here;
      const bool last = begin + n_here == n;
      if (outputs == Outputs::kAll) {
        for (int64_t t = 0; t < n_here; ++t) emit(prefill_->activations.x.data() + t * embed);
      } else if (outputs == Outputs::kLast && last) {
        emit(prefill_->activations.x.data() + (n_here - 1) * embed);
      }
    }
  }
  return {};
}

void Transformer::Prefill::MakeGemms(const ModelConfig& config, const KernelChoice& kernels,
                                     ComputeType compute, int n_threads) {
  if (down) return;  // made last: where memory ran out on the way, all are made again
  const int64_t embed = config.embed_dim;
  const int64_t q_dim = config.n_heads * config.head_dim;
  const auto create = [&](int64_t in, int64_t out) {
    return kernels.gemm.table->create(in, out, compute, *kernels.vector.table, n_threads);
  };
  q = create(embed, q_dim);
  kv = create(embed, config.n_kv_heads * config.head_dim);
  o = create(q_dim, embed);
  gate_up = create(embed, config.ffn_dim);
  panel.resize(static_cast<std::size_t>(n_threads));
  for (Buffer<float>& rows : panel) rows.Reset(Gemm::kPanel * std::max({embed, q_dim, config.ffn_dim}));
  down = create(config.ffn_dim, embed);
}

// One layer's weights, in the form its Gemm reads.
void Transformer::Prefill::Pack(std::span<PreparedLinear> linears, const KernelChoice& kernels,
                                ThreadPool& pool) {
  int64_t bytes = 0;
  for (const PreparedLinear& linear : linears) bytes += linear.gemm->n_panels() * linear.gemm->panel_stride();
  packed.Reserve(bytes);
  std::byte* at = packed.data();
  for (PreparedLinear& linear : linears) {
    linear.packed = at;
    at += linear.gemm->n_panels() * linear.gemm->panel_stride();
    const TensorView& w = linear.weights->w;
    const int64_t row_bytes = static_cast<int64_t>(*BytesOf(w.type, w.shape[1]));
    pool.Run(linear.gemm->n_panels(), [&](int64_t at_panel, int thread) {
      float* const rows = panel[static_cast<std::size_t>(thread)].data();
      kernels.quantised.table->dequantize(w.type, w.data + at_panel * Gemm::kPanel * row_bytes,
                                          linear.gemm->panel_width(at_panel) * linear.gemm->k(), rows);
      linear.gemm->Pack(at_panel, rows, linear.packed + at_panel * linear.gemm->panel_stride(), thread);
    });
  }
}

void Transformer::Prefill::Multiply(std::span<PreparedLinear> linears, int64_t n, const KernelChoice& kernels,
                                    ThreadPool& pool, const CancelToken* cancel) {
  Pack(linears, kernels, pool);
  int64_t n_panels = 0;
  for (const PreparedLinear& linear : linears) n_panels += linear.gemm->n_panels();
  const int64_t n_tiles = (n + kTileRows - 1) / kTileRows;
  // Tiles innermost: the threads' neighbouring tasks share a panel of weights, which stays in cache.
  pool.Run(n_tiles * n_panels, [&](int64_t task, int thread) {
    if (Cancelled(cancel)) return;
    int64_t at_panel = task / n_tiles;
    const int64_t tile = task % n_tiles;
    const PreparedLinear* linear = linears.data();
    for (; at_panel >= linear->gemm->n_panels(); ++linear) at_panel -= linear->gemm->n_panels();
    const int64_t row = tile * kTileRows;
    const int64_t n_out = linear->gemm->n();
    linear->gemm->Multiply(at_panel, linear->x + row * linear->gemm->k(),
                           linear->packed + at_panel * linear->gemm->panel_stride(),
                           std::min(kTileRows, n - row), linear->y + row * n_out, n_out, thread);
  });
  for (const PreparedLinear& linear : linears) {
    if (linear.weights->bias.empty()) continue;
    const int64_t n_out = linear.gemm->n();
    pool.Run(n_tiles, [&](int64_t tile, int) {
      for (int64_t row = tile * kTileRows; row < std::min(n, (tile + 1) * kTileRows); ++row)
        kernels.vector.table->add(linear.y + row * n_out, linear.weights->bias.data(), n_out);
    });
  }
}

Status Transformer::PrefillBlock(SequenceState& sequence, std::span<const int32_t> prompt, int64_t begin,
                                 int64_t end, const ForwardControl& control, double done, double share) {
  Prefill& p = *prefill_;
  Activations& a = p.activations;
  const VectorKernels& vector = *kernels_.vector.table;
  const int64_t n = end - begin;
  const int64_t n_following = static_cast<int64_t>(prompt.size()) - end;
  const int64_t first = sequence.size();
  const int64_t embed = config_.embed_dim;
  const int64_t ffn = config_.ffn_dim;
  p.MakeGemms(config_, kernels_, compute_, pool_.n_threads());
  a.Reserve(config_, RoundUp(n, kTileRows));
  sequence.kv.Reserve(first + n);

  const auto each_row = [&](const auto& body) {
    constexpr int64_t kRows = 32;
    pool_.Run((n + kRows - 1) / kRows, [&](int64_t task, int) {
      for (int64_t row = task * kRows; row < std::min(n, (task + 1) * kRows); ++row) body(row);
    });
  };
  const auto multiply = [&](std::span<PreparedLinear> linears) {
    p.Multiply(linears, n, kernels_, pool_, control.cancel);
  };
  each_row(
      [&](int64_t row) { Embed(prompt[static_cast<std::size_t>(begin + row)], a.x.data() + row * embed); });

  for (int64_t layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];

    // ---- Attention
    each_row([&](int64_t row) {
      vector.rms_norm(a.x.data() + row * embed, weights.attention_norm.data(), config_.rms_epsilon, embed,
                      a.normed.data() + row * embed);
    });
    PreparedLinear qkv[] = {
        {.weights = &weights.q, .gemm = p.q.get(), .x = a.normed.data(), .y = a.queries.data()},
        {.weights = &weights.k, .gemm = p.kv.get(), .x = a.normed.data(), .y = a.keys.data()},
        {.weights = &weights.v, .gemm = p.kv.get(), .x = a.normed.data(), .y = a.values.data()},
    };
    multiply(qkv);
    if (Cancelled(control.cancel)) return tl::unexpected<Error>(Stopped());
    AttendingSequence attending = Attending(sequence, layer, first + n + n_following);
    attending.n_preceding = begin;
    attending.n_following = n_following;
    const Policy& policy = *attention_[static_cast<std::size_t>(layer)].policy;
    if (!runner_.Prefill(policy, attending, a.Rows(layer), n, control.cancel)) {
      return tl::unexpected<Error>(Stopped());
    }
    PreparedLinear o[] = {
        {.weights = &weights.o, .gemm = p.o.get(), .x = a.attended.data(), .y = a.normed.data()}};
    multiply(o);

    // ---- Feed-forward
    each_row([&](int64_t row) {
      float* const x = a.x.data() + row * embed;
      float* const normed = a.normed.data() + row * embed;
      vector.add(x, normed, embed);
      vector.rms_norm(x, weights.ffn_norm.data(), config_.rms_epsilon, embed, normed);
    });
    PreparedLinear gate_up[] = {
        {.weights = &weights.gate, .gemm = p.gate_up.get(), .x = a.normed.data(), .y = a.gate.data()},
        {.weights = &weights.up, .gemm = p.gate_up.get(), .x = a.normed.data(), .y = a.up.data()},
    };
    multiply(gate_up);
    each_row([&](int64_t row) { vector.silu_mul(a.gate.data() + row * ffn, a.up.data() + row * ffn, ffn); });
    PreparedLinear down[] = {
        {.weights = &weights.down, .gemm = p.down.get(), .x = a.gate.data(), .y = a.normed.data()}};
    multiply(down);
    each_row(
        [&](int64_t row) { vector.add(a.x.data() + row * embed, a.normed.data() + row * embed, embed); });

    if (Cancelled(control.cancel)) return tl::unexpected<Error>(Stopped());
    if (control.progress) {
      control.progress(done + share * static_cast<double>(layer + 1) / static_cast<double>(config_.n_layers));
    }
  }
  sequence.kv.Commit(first + n);
  return {};
}

Status Transformer::DecodeStep(std::span<const BatchItem> items) {
  Activations& a = decode_->activations;
  const VectorKernels& vector = *kernels_.vector.table;
  const int64_t n = static_cast<int64_t>(items.size());
  const int64_t embed = config_.embed_dim;
  const int64_t ffn = config_.ffn_dim;
  a.Reserve(config_, n);
  for (int64_t i = 0; i < n; ++i) {
    const BatchItem& item = items[static_cast<std::size_t>(i)];
    LH_CHECK(item.tokens.size() == 1);
    item.sequence->kv.Reserve(item.sequence->size() + 1);
    Embed(item.tokens[0], a.x.data() + i * embed);
  }

  struct Product {
    const LinearWeights* weights;
    const float* x;
    float* y;
  };
  // Rows of all matrices in one loop; every row of weights is read once and meets all tokens of the batch.
  const auto multiply = [&](std::span<const Product> products) {
    int64_t n_tasks = 0;
    for (const Product& product : products) n_tasks += (product.weights->n_out() + kGemvRows - 1) / kGemvRows;
    pool_.Run(n_tasks, [&](int64_t task, int) {
      const Product* product = products.data();
      for (;; ++product) {
        const int64_t own = (product->weights->n_out() + kGemvRows - 1) / kGemvRows;
        if (task < own) break;
        task -= own;
      }
      const TensorView& w = product->weights->w;
      const int64_t n_out = product->weights->n_out();
      const int64_t begin = task * kGemvRows;
      const int64_t end = std::min(n_out, begin + kGemvRows);
      for (int64_t i = 0; i < n; ++i) {
        float* const y = product->y + i * n_out + begin;
        kernels_.quantised.table->gemv(w.type, w.data, begin, end, w.shape[1], product->x + i * w.shape[1],
                                       y);
        if (!product->weights->bias.empty())
          vector.add(y, product->weights->bias.data() + begin, end - begin);
      }
    });
  };

  for (int64_t layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    const Policy& policy = *attention_[static_cast<std::size_t>(layer)].policy;
    for (int64_t i = 0; i < n; ++i) {
      vector.rms_norm(a.x.data() + i * embed, weights.attention_norm.data(), config_.rms_epsilon, embed,
                      a.normed.data() + i * embed);
    }
    const Product qkv[] = {{&weights.q, a.normed.data(), a.queries.data()},
                           {&weights.k, a.normed.data(), a.keys.data()},
                           {&weights.v, a.normed.data(), a.values.data()}};
    multiply(qkv);
    decode_->sequences.clear();
    for (const BatchItem& item : items) {
      decode_->sequences.push_back(Attending(*item.sequence, layer, item.sequence->size() + 1));
    }
    runner_.Decode(policy, decode_->sequences, a.Rows(layer));
    const Product o[] = {{&weights.o, a.attended.data(), a.normed.data()}};
    multiply(o);
    for (int64_t i = 0; i < n; ++i) {
      float* const x = a.x.data() + i * embed;
      float* const normed = a.normed.data() + i * embed;
      vector.add(x, normed, embed);
      vector.rms_norm(x, weights.ffn_norm.data(), config_.rms_epsilon, embed, normed);
    }
    const Product gate_up[] = {{&weights.gate, a.normed.data(), a.gate.data()},
                               {&weights.up, a.normed.data(), a.up.data()}};
    multiply(gate_up);
    vector.silu_mul(a.gate.data(), a.up.data(), n * ffn);
    const Product down[] = {{&weights.down, a.gate.data(), a.normed.data()}};
    multiply(down);
    vector.add(a.x.data(), a.normed.data(), n * embed);
  }
  for (const BatchItem& item : items) item.sequence->kv.Commit(item.sequence->size() + 1);
  return {};
}

void Transformer::Logits(std::span<const float> hidden, std::span<float> logits) {
  const TensorView& w = weights_.output;
  const int64_t n_rows = static_cast<int64_t>(hidden.size()) / config_.embed_dim;
  LH_CHECK(static_cast<int64_t>(logits.size()) == n_rows * config_.vocab_size);
  pool_.Run((config_.vocab_size + kLogitRows - 1) / kLogitRows, [&](int64_t task, int) {
    const int64_t begin = task * kLogitRows;
    const int64_t end = std::min(config_.vocab_size, begin + kLogitRows);
    for (int64_t row = 0; row < n_rows; ++row) {
      kernels_.quantised.table->gemv(w.type, w.data, begin, end, config_.embed_dim,
                                     hidden.data() + row * config_.embed_dim,
                                     logits.data() + row * config_.vocab_size + begin);
    }
  });
}

uint64_t Transformer::WorkingBytes(int64_t n_tokens) const {
  const int64_t n = RoundUp(std::min(n_tokens, TokenBlock()), kTileRows);
  const int64_t q_dim = config_.n_heads * config_.head_dim;
  const int64_t kv_dim = config_.n_kv_heads * config_.head_dim;
  const int64_t rows = 2 * config_.embed_dim + 2 * q_dim + 2 * kv_dim + 2 * config_.ffn_dim;
  const int64_t widest =
      std::max((q_dim + 2 * kv_dim) * config_.embed_dim, 2 * config_.ffn_dim * config_.embed_dim);
  return sizeof(float) * static_cast<uint64_t>(n * rows + widest);
}

}  // namespace longheads
