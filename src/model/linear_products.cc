#include "model/linear_products.h"

#include <algorithm>

#include "base/check.h"

namespace longheads {
namespace {

constexpr int64_t kTile = Int8Weights::kTile;

// Finds the product that task number `task` belongs to, where each has tasks_of(product) of them in turn, and
// leaves the number within it.
template <typename TasksOf>
const LinearProduct& ProductOf(std::span<const LinearProduct> products, int64_t& task,
                               const TasksOf& tasks_of) {
  const LinearProduct* product = products.data();
  for (; task >= tasks_of(*product); ++product) task -= tasks_of(*product);
  return *product;
}

template <typename TasksOf>
int64_t SumOfTasks(std::span<const LinearProduct> products, const TasksOf& tasks_of) {
  int64_t n = 0;
  for (const LinearProduct& product : products) n += tasks_of(product);
  return n;
}

int64_t DivideUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// One of the model's linear weights.
uint64_t PackedBytesOf(const LinearWeights& linear, const ModelWeights& weights, ComputeType compute,
                       const GemmKernels& gemm) {
  const uint64_t element = compute == ComputeType::kBF16 && gemm.native_bf16 ? 2 : 4;
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
      panels_(static_cast<std::size_t>(pool.n_threads())) {}

void LinearProducts::Prepare(ModelWeights& weights) const {
  if (compute_ != ComputeType::kInt8) return;
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

void LinearProducts::Prefill(std::span<const LinearProduct> products, int64_t n_rows,
                             const CancelToken* cancel) {
  if (n_rows == 0) return;
  // Enough rows for a tile's weights to be read from cache, and few enough for their activations to stay
  // there.
  constexpr int64_t kTilesPerTask = 12, kRowsPerTask = 128;
  ForEachKind(products, [&](std::span<const LinearProduct> some, bool integers) {
    if (integers) return MultiplyIntegers(some, n_rows, kTilesPerTask, kRowsPerTask, cancel);
    MultiplyPacked(some, n_rows, cancel);
  });
  if (Cancelled(cancel)) return;
  for (const LinearProduct& product : products) {
    if (product.weights->bias.empty()) continue;
    constexpr int64_t kRows = 32;
    pool_.Run(DivideUp(n_rows, kRows), [&](int64_t task, int) {
      AddBias(product, task * kRows, std::min(n_rows, (task + 1) * kRows));
    });
  }
}

void LinearProducts::Decode(std::span<const LinearProduct> products, int64_t n_rows) {
  if (n_rows == 0) return;
  ForEachKind(products, [&](std::span<const LinearProduct> some, bool integers) {
    const Int8Rows x = integers ? Quantise(some[0], n_rows) : Int8Rows{};
    const auto tiles_of = [](const LinearProduct& product) {
      return DivideUp(product.weights->n_out(), kTile);
    };
    pool_.RunRanges(SumOfTasks(some, tiles_of), [&](int64_t begin, int64_t end, int) {
      for (const LinearProduct& product : some) {
        const int64_t n_tiles = tiles_of(product);
        const int64_t first = std::max<int64_t>(begin, 0), last = std::min(end, n_tiles);
        if (first < last && integers) MultiplyTiles(product, x, first, last, n_rows);
        if (first < last && !integers) MultiplyVectors(product, first * kTile, last * kTile, n_rows);
        begin -= n_tiles;
        end -= n_tiles;
      }
    });
  });
  for (const LinearProduct& product : products) {
    if (!product.weights->bias.empty()) AddBias(product, 0, n_rows);
  }
}

void LinearProducts::AddBias(const LinearProduct& product, int64_t begin, int64_t end) const {
  const int64_t n_out = product.weights->n_out();
  for (int64_t row = begin; row < end; ++row)
    kernels_.vector.add(product.y + row * n_out, product.weights->bias.data(), n_out);
}

// ---- Float products

const Gemm& LinearProducts::GemmFor(const TensorView& w) {
  for (const std::unique_ptr<Gemm>& gemm : gemms_) {
    if (gemm->n() == w.shape[0] && gemm->k() == w.shape[1]) return *gemm;
  }
  gemms_.push_back(
      kernels_.gemm.create(w.shape[1], w.shape[0], compute_, kernels_.vector, pool_.n_threads()));
  return *gemms_.back();
}

void LinearProducts::Pack(const LinearProduct& product, std::byte* packed) {
  const TensorView& w = product.weights->w;
  const Gemm& gemm = GemmFor(w);
  const int64_t row_bytes = static_cast<int64_t>(*BytesOf(w.type, w.shape[1]));
  for (Buffer<float>& panel : panels_) panel.Reserve(Gemm::kPanel * gemm.k());
  pool_.Run(gemm.n_panels(), [&](int64_t panel, int thread) {
    float* const rows = panels_[static_cast<std::size_t>(thread)].data();
    kernels_.quantised.dequantize(w.type, w.data + panel * Gemm::kPanel * row_bytes,
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

void LinearProducts::ForgetRows() {
  rounded_ = {};
  p_ = {};
  blocks_ = {};
}

int64_t LinearProducts::PackedSize(const LinearProduct& product) {
  const Gemm& gemm = GemmFor(product.weights->w);
  return gemm.n_panels() * gemm.panel_stride();
}

std::span<const std::byte* const> LinearProducts::Packed(std::span<const LinearProduct> products) {
  packed_at_.clear();
  if (!keep_packed_)
    packed_.Reserve(
        SumOfTasks(products, [this](const LinearProduct& product) { return PackedSize(product); }));
  std::byte* at = packed_.data();
  for (const LinearProduct& product : products) {
    if (keep_packed_) {
      Buffer<std::byte>& kept = kept_[product.weights];
      if (kept.size() == 0) {  // and stays so where packing fails
        Buffer<std::byte> packed(PackedSize(product));
        Pack(product, packed.data());
        kept = std::move(packed);
      }
      packed_at_.push_back(kept.data());
    } else {
      Pack(product, at);
      packed_at_.push_back(at);
      at += PackedSize(product);
    }
  }
  return packed_at_;
}

void LinearProducts::MultiplyPacked(std::span<const LinearProduct> products, int64_t n_rows,
                                    const CancelToken* cancel) {
  const std::span<const std::byte* const> packed = Packed(products);
  const std::byte* const x = Rounded(products[0], n_rows);
  const int64_t n_tiles = DivideUp(n_rows, Gemm::kTileRows);
  const auto tasks_of = [&](const LinearProduct& product) {
    return GemmFor(product.weights->w).n_panels() * n_tiles;
  };
  // Tiles innermost: the threads' neighbouring tasks share a panel of weights, which stays in cache.
  pool_.Run(SumOfTasks(products, tasks_of), [&](int64_t task, int thread) {
    if (Cancelled(cancel)) return;
    const LinearProduct& product = ProductOf(products, task, tasks_of);
    const Gemm& gemm = GemmFor(product.weights->w);
    const std::byte* const panels = packed[static_cast<std::size_t>(&product - products.data())];
    const int64_t panel = task / n_tiles, row = task % n_tiles * Gemm::kTileRows;
    gemm.Multiply(panel, x + row * gemm.row_bytes(), panels + panel * gemm.panel_stride(),
                  std::min(Gemm::kTileRows, n_rows - row), product.y + row * gemm.n(), thread);
  });
}

const std::byte* LinearProducts::Rounded(const LinearProduct& product, int64_t n_rows) {
  const Gemm& gemm = GemmFor(product.weights->w);
  if (!gemm.rounds()) return reinterpret_cast<const std::byte*>(product.x);
  constexpr int64_t kRows = 32;  // in one task
  const int64_t n = DivideUp(n_rows, Gemm::kTileRows) * Gemm::kTileRows;
  rounded_.Reserve(n * gemm.row_bytes());
  pool_.Run(DivideUp(n, kRows), [&](int64_t task, int) {
    const int64_t row = task * kRows;
    gemm.Round(product.x + row * gemm.k(), std::min(kRows, n - row),
               rounded_.data() + row * gemm.row_bytes());
  });
  return rounded_.data();
}

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

// ---- Integer products

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

void LinearProducts::MultiplyTiles(const LinearProduct& product, const Int8Rows& x, int64_t begin,
                                   int64_t end, int64_t n_rows) const {
  const Int8Weights& weights = *product.weights->integers;
  kernels_.int8.multiply(weights, begin, end, x, n_rows, product.y, weights.n());
}

void LinearProducts::MultiplyIntegers(std::span<const LinearProduct> products, int64_t n_rows,
                                      int64_t tiles_per_task, int64_t rows_per_task,
                                      const CancelToken* cancel) {
  const Int8Rows x = Quantise(products[0], n_rows);
  const int64_t row_tasks = DivideUp(n_rows, rows_per_task);
  const auto tasks_of = [&](const LinearProduct& product) {
    return DivideUp(product.weights->integers->n_tiles(), tiles_per_task) * row_tasks;
  };
  pool_.Run(SumOfTasks(products, tasks_of), [&](int64_t task, int) {
    if (Cancelled(cancel)) return;
    const LinearProduct& product = ProductOf(products, task, tasks_of);
    const Int8Weights& weights = *product.weights->integers;
    const int64_t tile = task / row_tasks * tiles_per_task, row = task % row_tasks * rows_per_task;
    kernels_.int8.multiply(weights, tile, std::min(weights.n_tiles(), tile + tiles_per_task),
                           {.p = x.p + row * x.k, .blocks = x.blocks + row * (x.k / 32), .k = x.k},
                           std::min(rows_per_task, n_rows - row), product.y + row * weights.n(), weights.n());
  });
}

}  // namespace longheads
