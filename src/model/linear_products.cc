#include "model/linear_products.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace longheads {
namespace {

constexpr int64_t kTile = Int8Weights::kTile;
// A prompt's tasks: blocks of so many rows and outputs, whatever multiplies them. Enough rows for weights to
// be read from cache, and few enough for their activations to stay there.
constexpr int64_t kBlockRows = Gemm::kTileRows, kPanel = Gemm::kPanel, kPanelTiles = kPanel / kTile;
static_assert(kPanel % kTile == 0 && kPanel % Gemm::kColumnUnit == 0);

int64_t DivideUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// One of the model's linear weights.
uint64_t PackedBytesOf(const LinearWeights& linear, const ModelWeights& weights, ComputeType compute,
                       const GemmKernels& gemm) {
  const uint64_t element = OfPrompts(compute) == ComputeType::kBF16 && gemm.native_bf16 ? 2 : 4;
  const bool integers = compute == ComputeType::kInt8 && HasIntegers(linear.w.type);
  if (&linear == &weights.output || integers) return 0;  // the vocabulary's are not packed at all
  const int64_t panels = DivideUp(linear.n_out(), Gemm::kPanel);
  return element * static_cast<uint64_t>(panels * Gemm::kPanel * linear.n_in());
}

}  // namespace

uint64_t Int8Bytes(const ModelWeights& weights) {
  return SumOverLinears(weights, [](const LinearWeights& linear) -> uint64_t {
    const TensorView& w = linear.w;
    return HasIntegers(w.type) ? static_cast<uint64_t>(Int8Weights::BytesFor(w.type, w.shape[0], w.shape[1]))
                               : 0;
  });
}

uint64_t PackedBytes(const ModelWeights& weights, ComputeType compute, const GemmKernels& gemm) {
  return SumOverLinears(
      weights, [&](const LinearWeights& linear) { return PackedBytesOf(linear, weights, compute, gemm); });
}

LinearProducts::LinearProducts(const LinearKernels& kernels, ComputeType compute, bool keep_packed,
                               ThreadPool& pool)
    : kernels_(kernels),
      compute_(compute),
      keep_packed_(keep_packed),
      pool_(pool),
      scratch_(static_cast<std::size_t>(pool.n_threads())) {
  for (Scratch& scratch : scratch_) {
    scratch.y.Reset(kBlockRows * kPanel);
    scratch.up.Reset(kBlockRows * kPanel);
  }
}

void LinearProducts::Prepare(ModelWeights& weights) const {
  if (!TokensInIntegers(compute_)) return;
  // In the order in which a token reads them.
  const std::shared_ptr<uint8_t> room = Int8Weights::Room(static_cast<int64_t>(Int8Bytes(weights)));
  uint8_t* at = room.get();
  ForEachLinear(weights, [&](LinearWeights& linear) {
    const TensorView& w = linear.w;
    if (!HasIntegers(w.type)) return;
    auto integers =
        std::make_unique<Int8Weights>(w.type, w.shape[0], w.shape[1], std::shared_ptr<uint8_t>(room, at));
    pool_.Run(integers->n_tiles(), [&](int64_t tile, int) { integers->Pack(w.data, tile); });
    at += Int8Weights::BytesFor(w.type, w.shape[0], w.shape[1]);
    linear.integers = std::move(integers);
  });
}

// A file mixes types: neighbours of a kind go together.
template <typename Body>
void LinearProducts::ForEachKind(std::span<const LinearProduct> products, const Body& body) {
  for (std::size_t begin = 0, end = 0; begin < products.size(); begin = end) {
    const bool integers = products[begin].weights->integers != nullptr;
    while (end < products.size() && (products[end].weights->integers != nullptr) == integers) ++end;
    body(products.subspan(begin, end - begin), integers);
  }
}

void LinearProducts::Decode(std::span<const LinearProduct> products, int64_t n_rows) {
  if (n_rows == 0) return;
  ForEachKind(products, [&](std::span<const LinearProduct> some, bool integers) {
    const Int8Rows x = integers ? Quantise(some[0], n_rows) : Int8Rows{};
    const auto tiles_of = [](const LinearProduct& product) {
      return DivideUp(product.weights->n_out(), kTile);
    };
    int64_t n_all = 0;
    for (const LinearProduct& product : some) n_all += tiles_of(product);
    pool_.RunRanges(n_all, [&](int64_t begin, int64_t end, int) {
      for (const LinearProduct& product : some) {
        const int64_t n_tiles = tiles_of(product);
        const int64_t first = std::max<int64_t>(begin, 0), last = std::min(end, n_tiles);
        if (first < last && integers) {
          const Int8Weights& weights = *product.weights->integers;
          kernels_.int8.multiply(weights, first, last, x, n_rows, product.y + first * kTile, weights.n());
        }
        if (first < last && !integers) MultiplyVectors(product, first * kTile, last * kTile, n_rows);
        begin -= n_tiles;
        end -= n_tiles;
      }
    });
  });
  for (const LinearProduct& product : products) {
    if (product.weights->bias.empty()) continue;
    const int64_t n_out = product.weights->n_out();
    for (int64_t row = 0; row < n_rows; ++row)
      kernels_.vector.add(product.y + row * n_out, product.weights->bias.data(), n_out);
  }
}

// ---- A prompt's weights

const Gemm& LinearProducts::GemmFor(const TensorView& w) {
  for (const std::unique_ptr<Gemm>& gemm : gemms_) {
    if (gemm->n() == w.shape[0] && gemm->k() == w.shape[1]) return *gemm;
  }
  gemms_.push_back(
      kernels_.gemm.create(w.shape[1], w.shape[0], OfPrompts(compute_), kernels_.vector, pool_.n_threads()));
  return *gemms_.back();
}

void LinearProducts::Pack(const TensorView& w, std::byte* packed) {
  const Gemm& gemm = GemmFor(w);
  const int64_t row_bytes = static_cast<int64_t>(*BytesOf(w.type, w.shape[1]));
  for (Scratch& scratch : scratch_) scratch.panel.Reserve(kPanel * gemm.k());
  pool_.Run(gemm.n_panels(), [&](int64_t panel, int thread) {
    float* const rows = scratch_[static_cast<std::size_t>(thread)].panel.data();
    kernels_.quantised.dequantize(w.type, w.data + panel * kPanel * row_bytes,
                                  gemm.panel_width(panel) * gemm.k(), rows);
    gemm.Pack(panel, rows, packed + panel * gemm.panel_stride(), thread);
  });
}

uint64_t LinearProducts::UnpackedBytes(const ModelWeights& weights) const {
  if (!keep_packed_) return 0;
  return SumOverLinears(weights, [&](const LinearWeights& linear) -> uint64_t {
    const auto kept = kept_.find(&linear);
    const bool packed = kept != kept_.end() && kept->second.size() > 0;
    return packed ? 0 : PackedBytesOf(linear, weights, compute_, kernels_.gemm);
  });
}

std::span<const LinearProducts::Factor> LinearProducts::Factors(
    std::span<const LinearWeights* const> weights) {
  factors_.clear();
  const auto packed_size = [](const Gemm& gemm) { return gemm.n_panels() * gemm.panel_stride(); };
  int64_t of_call = 0;
  for (const LinearWeights* const linear : weights) {
    factors_.push_back(
        {.weights = linear, .gemm = PromptInIntegers(*linear) ? nullptr : &GemmFor(linear->w)});
    if (factors_.back().gemm != nullptr) of_call += packed_size(*factors_.back().gemm);
  }
  if (!keep_packed_) packed_.Reserve(of_call);
  std::byte* at = packed_.data();
  for (Factor& factor : factors_) {
    if (factor.gemm == nullptr) continue;
    const int64_t size = packed_size(*factor.gemm);
    if (!keep_packed_) {
      Pack(factor.weights->w, at);
      factor.packed = at;
      at += size;
      continue;
    }
    Buffer<std::byte>& kept = kept_[factor.weights];
    if (kept.size() == 0) {  // and stays so where packing fails
      Buffer<std::byte> packed(size);
      Pack(factor.weights->w, packed.data());
      kept = std::move(packed);
    }
    factor.packed = kept.data();
  }
  return factors_;
}

// ---- A prompt's rows

uint64_t LinearProducts::RowBytes(const ModelWeights& weights) const {
  const uint64_t element = OfPrompts(compute_) == ComputeType::kBF16 && kernels_.gemm.native_bf16 ? 2 : 4;
  struct Widest {
    int64_t floats = 0, integers = 0;
  } input, hidden;
  for (const LayerWeights& layer : weights.layers) {
    const auto widen = [&](const LinearWeights& linear, Widest& widest) {
      int64_t& k = PromptInIntegers(linear) ? widest.integers : widest.floats;
      k = std::max(k, linear.n_in());
    };
    for (const LinearWeights* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up})
      widen(*linear, input);
    widen(layer.down, hidden);
  }
  const auto floats = static_cast<uint64_t>(input.floats + hidden.floats);
  const auto integers = static_cast<uint64_t>(input.integers + hidden.integers);
  return element * floats + integers + integers / 32 * sizeof(Int8BlockSums);
}

void LinearProducts::ForgetRows() {
  input_ = {};
  hidden_ = {};
}

void LinearProducts::SetForms(std::span<const Factor> factors, int64_t n_rows, Rows& rows) {
  rows.k = factors[0].weights->n_in();
  rows.gemm = nullptr;
  rows.integers = false;
  for (const Factor& factor : factors) {
    if (factor.gemm != nullptr) rows.gemm = factor.gemm;
    rows.integers |= factor.gemm == nullptr;
  }
  if (rows.gemm != nullptr)
    rows.floats.Reserve(DivideUp(n_rows, kBlockRows) * kBlockRows * rows.gemm->row_bytes());
  if (rows.integers) {
    rows.p.Reserve(n_rows * rows.k);
    rows.blocks.Reserve(n_rows * (rows.k / 32));
  }
}

void LinearProducts::Place(const float* x, int64_t n, int64_t row, int64_t column, Rows& rows) const {
  if (rows.gemm != nullptr) rows.gemm->Place(x, n, row, column, rows.floats.data());
  if (!rows.integers) return;
  const int64_t at = row * rows.k + column;  // of whole blocks, as k is
  kernels_.int8.quantise(x, n, rows.p.data() + at, rows.blocks.data() + at / 32);
}

template <typename Body>
void LinearProducts::RunTasks(int64_t n_tasks, const CancelToken* cancel, const Body& body) {
  pool_.Run(n_tasks, [&](int64_t task, int thread) {
    if (!Cancelled(cancel)) body(task, thread);
  });
}

std::span<const LinearProducts::Factor> LinearProducts::PlaceInput(
    const LinearInput& input, std::span<const LinearWeights* const> weights, int64_t n_rows,
    const CancelToken* cancel) {
  const std::span<const Factor> factors = Factors(weights);
  SetForms(factors, n_rows, input_);
  const int64_t k = input_.k;
  if (input.norm != nullptr) {
    for (Scratch& scratch : scratch_) scratch.row.Reserve(k);
  }
  constexpr int64_t kRows = 8;  // in one task
  RunTasks(DivideUp(n_rows, kRows), cancel, [&](int64_t task, int thread) {
    float* const normed = scratch_[static_cast<std::size_t>(thread)].row.data();
    for (int64_t row = task * kRows; row < std::min(n_rows, (task + 1) * kRows); ++row) {
      const float* x = input.x + row * k;
      if (input.norm != nullptr) {
        kernels_.vector.rms_norm(x, input.norm, input.epsilon, k, normed);
        x = normed;
      }
      Place(x, k, row, /*column=*/0, input_);
    }
  });
  return factors;
}

// ---- A prompt's products

void LinearProducts::MultiplyBlock(const Factor& factor, const Rows& rows, int64_t panel, int64_t row,
                                   int64_t n_rows, float* y, int64_t y_stride, int thread) const {
  const LinearWeights& linear = *factor.weights;
  if (factor.gemm != nullptr) {
    const Gemm& gemm = *factor.gemm;
    gemm.Multiply(panel, rows.floats.data() + row * gemm.row_bytes(),
                  factor.packed + panel * gemm.panel_stride(), n_rows, y, y_stride, thread);
  } else {
    const Int8Weights& weights = *linear.integers;
    const int64_t tile = panel * kPanelTiles, at = row * rows.k;
    kernels_.int8.multiply(weights, tile, std::min(weights.n_tiles(), tile + kPanelTiles),
                           {.p = rows.p.data() + at, .blocks = rows.blocks.data() + at / 32, .k = rows.k},
                           n_rows, y, y_stride);
  }
  if (linear.bias.empty()) return;
  const int64_t output = panel * kPanel;
  for (int64_t i = 0; i < n_rows; ++i)
    kernels_.vector.add(y + i * y_stride, linear.bias.data() + output,
                        std::min(kPanel, linear.n_out() - output));
}

// A task is a panel by as many rows as stay in a thread's second cache: threads that are at the same rows
// read each panel of weights once between them, and the rows again from near. Fewer rows where threads would
// be left without.
template <typename Body>
void LinearProducts::RunBlocks(int64_t n_panels, const Rows& rows, int64_t n_rows, const CancelToken* cancel,
                               const Body& body) {
  constexpr int64_t kNearBytes = int64_t{1200} << 10, kTasksPerThread = 3;
  const int64_t row_bytes = rows.gemm != nullptr ? rows.gemm->row_bytes() : rows.k;
  const int64_t n_blocks = DivideUp(n_rows, kBlockRows);
  const int64_t most = std::max<int64_t>(1, kNearBytes / (kBlockRows * row_bytes));  // blocks of a task
  const int64_t n_groups = std::min(
      n_blocks, std::max(DivideUp(n_blocks, most), DivideUp(kTasksPerThread * pool_.n_threads(), n_panels)));
  RunTasks(n_groups * n_panels, cancel, [&](int64_t task, int thread) {
    const int64_t group = task / n_panels, panel = task % n_panels;
    for (int64_t block = group * n_blocks / n_groups; block < (group + 1) * n_blocks / n_groups; ++block) {
      if (Cancelled(cancel)) return;
      const int64_t row = block * kBlockRows;
      body(panel, row, std::min(kBlockRows, n_rows - row), thread);
    }
  });
}

void LinearProducts::Project(const LinearInput& input, std::span<const LinearOutput> outputs, int64_t n_rows,
                             const CancelToken* cancel) {
  if (n_rows == 0) return;
  std::array<const LinearWeights*, 3> weights{};
  LH_CHECK(outputs.size() <= weights.size());
  std::ranges::transform(outputs, weights.begin(), &LinearOutput::weights);
  const auto factors = PlaceInput(input, std::span(weights).first(outputs.size()), n_rows, cancel);
  const auto n_panels = [](const LinearOutput& output) { return DivideUp(output.weights->n_out(), kPanel); };
  int64_t n_all = 0;
  for (const LinearOutput& output : outputs) n_all += n_panels(output);
  RunBlocks(n_all, input_, n_rows, cancel, [&](int64_t panel, int64_t row, int64_t n_here, int thread) {
    std::size_t i = 0;
    for (; panel >= n_panels(outputs[i]); ++i) panel -= n_panels(outputs[i]);
    const int64_t n_out = outputs[i].weights->n_out();
    MultiplyBlock(factors[i], input_, panel, row, n_here, outputs[i].y + row * n_out + panel * kPanel, n_out,
                  thread);
  });
}

void LinearProducts::AddProducts(const Factor& factor, const Rows& rows, float* sums, int64_t n_rows,
                                 const CancelToken* cancel) {
  const int64_t n_out = factor.weights->n_out();
  RunBlocks(DivideUp(n_out, kPanel), rows, n_rows, cancel,
            [&](int64_t panel, int64_t row, int64_t n_here, int thread) {
              const int64_t width = std::min(kPanel, n_out - panel * kPanel);
              float* const y = scratch_[static_cast<std::size_t>(thread)].y.data();
              MultiplyBlock(factor, rows, panel, row, n_here, y, kPanel, thread);
              for (int64_t i = 0; i < n_here; ++i)
                kernels_.vector.add(sums + (row + i) * n_out + panel * kPanel, y + i * kPanel, width);
            });
}

void LinearProducts::AddProjection(const LinearInput& input, const LinearOutput& sums, int64_t n_rows,
                                   const CancelToken* cancel) {
  if (n_rows == 0) return;
  const auto factors = PlaceInput(input, std::span(&sums.weights, 1), n_rows, cancel);
  AddProducts(factors[0], input_, sums.y, n_rows, cancel);
}

void LinearProducts::AddFeedForward(const LinearInput& input, const LayerWeights& layer, float* sums,
                                    int64_t n_rows, const CancelToken* cancel) {
  if (n_rows == 0) return;
  const LinearWeights* const first[] = {&layer.gate, &layer.up};
  const auto factors = PlaceInput(input, first, n_rows, cancel);
  const Factor down{.weights = &layer.down,
                    .gemm = PromptInIntegers(layer.down) ? nullptr : &GemmFor(layer.down.w)};
  SetForms(std::span(&down, 1), n_rows, hidden_);
  const int64_t n_out = layer.gate.n_out();
  RunBlocks(DivideUp(n_out, kPanel), input_, n_rows, cancel,
            [&](int64_t panel, int64_t row, int64_t n_here, int thread) {
              const int64_t width = std::min(kPanel, n_out - panel * kPanel);
              Scratch& scratch = scratch_[static_cast<std::size_t>(thread)];
              float* const gate = scratch.y.data();
              float* const up = scratch.up.data();
              MultiplyBlock(factors[0], input_, panel, row, n_here, gate, kPanel, thread);
              MultiplyBlock(factors[1], input_, panel, row, n_here, up, kPanel, thread);
              for (int64_t i = 0; i < n_here; ++i) {
                kernels_.vector.silu_mul(gate + i * kPanel, up + i * kPanel, width);
                Place(gate + i * kPanel, width, row + i, panel * kPanel, hidden_);
              }
            });
  if (Cancelled(cancel)) return;
  const LinearWeights* const second[] = {&layer.down};
  AddProducts(Factors(second)[0], hidden_, sums, n_rows, cancel);
}

// ---- A token's products

void LinearProducts::MultiplyVectors(const LinearProduct& product, int64_t begin, int64_t end,
                                     int64_t n_rows) const {
  const TensorView& w = product.weights->w;
  const int64_t n_out = w.shape[0], k = w.shape[1];
  end = std::min(n_out, end);
  constexpr int64_t kInCache = 64;  // outputs, whose weights the next row finds there
  for (int64_t first = begin; first < end; first += kInCache) {
    for (int64_t row = 0; row < n_rows; ++row) {
      kernels_.quantised.gemv(w.type, w.data, first, std::min(end, first + kInCache), k, product.x + row * k,
                              product.y + row * n_out + first);
    }
  }
}

Int8Rows LinearProducts::Quantise(const LinearProduct& product, int64_t n_rows) {
  constexpr int64_t kRows = 8;  // in one task
  const int64_t k = product.weights->n_in();
  p_.Reserve(n_rows * k);
  blocks_.Reserve(n_rows * (k / 32));
  const auto quantise = [&](int64_t task, int) {
    for (int64_t row = task * kRows; row < std::min(n_rows, (task + 1) * kRows); ++row) {
      kernels_.int8.quantise(product.x + row * k, k, p_.data() + row * k, blocks_.data() + row * (k / 32));
    }
  };
  if (n_rows <= kRows) {
    quantise(0, 0);  // less work than waking threads
  } else {
    pool_.Run(DivideUp(n_rows, kRows), quantise);
  }
  return {.p = p_.data(), .blocks = blocks_.data(), .k = k};
}

}  // namespace longheads
