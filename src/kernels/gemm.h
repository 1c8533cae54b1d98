// Matrix products of prefill: Y = X W^T for the linear layers.
//
// Work is cut into tiles of fixed shape, kTileRows tokens by kPanel outputs, whatever the number of tokens
// and threads: a library chooses its order of summation from the shape, and with one shape there is one
// order. So a token's result depends on the token and the weights alone; the tests hold every implementation
// to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/implementation.h"
#include "kernels/vector_ops.h"

namespace longheads {

enum class ComputeType : uint8_t {
  kF32,   // float32 products and sums
  kBF16,  // both factors rounded to bfloat16, float32 sums
  kInt8,  // activations rounded to eight bits, integer sums of blocks (kernels/int8.h); as kF32 for weights
          // that have no integers
  kBF16Int8,  // a prompt's products as kBF16, a token's as kInt8
};

std::string_view NameOf(ComputeType type);  // "f32", "bf16", "int8", "bf16-int8"

// What a prompt's products are.
constexpr ComputeType OfPrompts(ComputeType type) {
  return type == ComputeType::kBF16Int8 ? ComputeType::kBF16 : type;
}
// Whether a token's are in integers.
constexpr bool TokensInIntegers(ComputeType type) {
  return type == ComputeType::kInt8 || type == ComputeType::kBF16Int8;
}

// The product for one shape of weights [n, k]. Thread-safe but for the thread number: one caller per number.
class Gemm {
 public:
  // A multiple of every micro-kernel's rows (6, 8, 16, 24, 32, 48): with a remainder oneDNN sums some rows of
  // a tile in another order. Wide enough to reuse weights, narrow enough for a short prompt.
  static constexpr int64_t kTileRows = 96;
  static constexpr int64_t kPanel = 192;  // outputs: what threads share out

  virtual ~Gemm() = default;

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t n_panels() const { return (n_ + kPanel - 1) / kPanel; }
  int64_t panel_width(int64_t panel) const { return panel + 1 < n_panels() ? kPanel : n_ - panel * kPanel; }

  // Bytes that one panel's weights take once packed; panels are packed at multiples of panel_stride.
  virtual int64_t panel_stride() const = 0;
  // weights [panel_width, k] float32, row-major, as stored; may be overwritten.
  virtual void Pack(int64_t panel, float* weights, std::byte* packed, int thread) const = 0;
  // Rows of x as Multiply reads them: whole tiles of kTileRows, of row_bytes a row, aligned to a cache line.
  // All products of one k and type read the same. Place puts the numbers x [n] where those of row `row` from
  // `column` on are, rounded to what is multiplied; both are multiples of kColumnUnit, n too but where it
  // reaches k.
  static constexpr int64_t kColumnUnit = 32;
  virtual int64_t row_bytes() const = 0;
  virtual void Place(const float* x, int64_t n, int64_t row, int64_t column, std::byte* rows) const = 0;
  // y[row * y_stride + output] = x W^T for the outputs of a panel and the first n_rows rows of a tile, which
  // begins at x; of the other rows nothing is written, whatever is there.
  virtual void Multiply(int64_t panel, const std::byte* x, const std::byte* packed, int64_t n_rows, float* y,
                        int64_t y_stride, int thread) const = 0;

 protected:
  Gemm(int64_t k, int64_t n) : k_(k), n_(n) {}

 private:
  int64_t k_;
  int64_t n_;
};

struct GemmKernels {
  // For n_threads callers at once. `conversions` round to bfloat16.
  std::unique_ptr<Gemm> (*create)(int64_t k, int64_t n, ComputeType type, const VectorKernels& conversions,
                                  int n_threads);
  bool native_bf16;  // kBF16 runs on bfloat16 instructions rather than on rounded float32 numbers
};

// "amx" (our own in bfloat16), oneDNN under the names of the instruction sets it would use, then "ref".
// Whoever forces a name forces it for the process: oneDNN's ceiling is global, and set before its first
// product.
std::span<const Implementation<GemmKernels>> GemmImplementations();

// A large product on operands of its own, for measuring what this machine can do: oneDNN's, and in bfloat16
// with AMX our own, which is faster. On the calling thread.
class PeakGemm {
 public:
  virtual ~PeakGemm() = default;
  virtual double operations() const = 0;  // of one Run: two for a multiply-add
  virtual void Run() = 0;
};

// Null where the processor has no instructions for the type. kInt8: unsigned with signed bytes, sums of 32
// bits.
std::unique_ptr<PeakGemm> MakePeakGemm(ComputeType type);

// Tells oneDNN not to look above a backend ("avx2", ...). Whether it will not: after its first product it is
// too late, and products run on what it chose then.
bool LimitGemm(std::string_view backend);

}  // namespace longheads
