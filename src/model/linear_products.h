// The products of linear layers, in the model's compute type: Y = X W^T + bias.
//
// Prefill in float32 or bfloat16 de-quantises a layer's weights and packs them for GEMM, for the call or,
// where they are to be kept, for all that come; decode multiplies them as they lie in the file, in float32.
// Integer products keep weights laid out anew (Int8Weights), and are one operation for both.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/cancel.h"
#include "base/thread_pool.h"
#include "kernels/gemm.h"
#include "kernels/int8.h"
#include "kernels/quantised.h"
#include "kernels/vector_ops.h"
#include "model/weights.h"

namespace longheads {

// The chosen implementations that they need.
struct LinearKernels {
  const GemmKernels& gemm;
  const Int8Kernels& int8;
  const QuantisedKernels& quantised;
  const VectorKernels& vector;
};

struct LinearProduct {
  const LinearWeights* weights;
  const float* x;  // [n_rows, n_in]; in prefill readable up to a multiple of LinearProducts::kRowUnit rows
  float* y;        // [n_rows, n_out]
};

// Bytes of the weights that integer products lay out anew: of those that have integers.
uint64_t Int8Bytes(const ModelWeights& weights);
// Bytes of the layers' weights packed for prefill, but for a little that a library may pad them with: of
// those that are not multiplied as integers.
uint64_t PackedBytes(const ModelWeights& weights, ComputeType compute, const GemmKernels& gemm);

class LinearProducts {
 public:
  // Activations are allocated in whole multiples of so many rows.
  static constexpr int64_t kRowUnit = Gemm::kTileRows;

  // keep_packed: what Prefill packs stays, PackedBytes of it.
  LinearProducts(const LinearKernels& kernels, ComputeType compute, bool keep_packed, ThreadPool& pool);

  // Lays weights out for integer products where that is the compute type and they have integers. Once for a
  // model.
  void Prepare(ModelWeights& weights) const;

  // Of many rows, a prompt's. All products have one x. Rows are unfinished where it was cancelled.
  void Prefill(std::span<const LinearProduct> products, int64_t n_rows, const CancelToken* cancel);
  // Of few rows, a token each. All products have one x. Every row of weights is read once and meets all of
  // them.
  void Decode(std::span<const LinearProduct> products, int64_t n_rows);

  // Of PackedBytes, where they are kept: of the weights that no Prefill has packed yet.
  uint64_t UnpackedBytes(const ModelWeights& weights) const;
  // Memory for the rows of the largest prompt so far goes back to the system.
  void ForgetRows();

 private:
  // body(neighbouring products of one kind, whether they have integers).
  template <typename Body>
  static void ForEachKind(std::span<const LinearProduct> products, const Body& body);
  void AddBias(const LinearProduct& product, int64_t begin, int64_t end) const;  // to rows [begin, end)
  const Gemm& GemmFor(const TensorView& w);
  int64_t PackedSize(const LinearProduct& product);
  // The weights of `product` packed for its Gemm, at `packed`.
  void Pack(const LinearProduct& product, std::byte* packed);
  // The weights of each of `products` packed, until the next call.
  std::span<const std::byte* const> Packed(std::span<const LinearProduct> products);
  // x of many rows as their products read it.
  const std::byte* Rounded(const LinearProduct& product, int64_t n_rows);
  void MultiplyPacked(std::span<const LinearProduct> products, int64_t n_rows, const CancelToken* cancel);
  // Outputs [begin, end) of all rows.
  void MultiplyVectors(const LinearProduct& product, int64_t begin, int64_t end, int64_t n_rows) const;
  // Outputs of the weights' tiles [begin, end) of all rows.
  void MultiplyTiles(const LinearProduct& product, const Int8Rows& x, int64_t begin, int64_t end,
                     int64_t n_rows) const;
  void MultiplyIntegers(std::span<const LinearProduct> products, int64_t n_rows, int64_t tiles_per_task,
                        int64_t rows_per_task, const CancelToken* cancel);
  Int8Rows Quantise(const LinearProduct& product, int64_t n_rows);  // of its x

  LinearKernels kernels_;
  ComputeType compute_;
  bool keep_packed_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<Gemm>> gemms_;  // one for each shape of weights
  std::vector<Buffer<float>> panels_;         // per thread: one panel's weights de-quantised, [kPanel, k]
  std::unordered_map<const LinearWeights*, Buffer<std::byte>> kept_;  // packed, where they are to be kept
  Buffer<std::byte> packed_;                                          // else those of one call
  std::vector<const std::byte*> packed_at_;                           // of one call
  Buffer<std::byte> rounded_;  // activations of one call, where products are not of float32
  Buffer<int8_t> p_;           // activations of one call, quantised
  Buffer<Int8BlockSums> blocks_;
};

}  // namespace longheads
