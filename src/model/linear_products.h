// The products of linear layers, in the model's compute type: Y = X W^T + bias.
//
// Prefill in float32 or bfloat16 de-quantises a layer's weights and packs them for GEMM, for the call or,
// where they are to be kept, for all that come; decode multiplies them as they lie in the file, in float32.
// Integer products keep weights laid out anew (Int8Weights), and are one operation for both; under kBF16Int8
// they are decode's alone.
//
// A prompt's products take with them what is next to them in a layer: the norm before, the sum or the gate
// behind. Rows are normalised straight into what products read, and outputs meet what they are added to, or
// multiplied with, while they are in a near cache: a block of rows by a panel of outputs at a time.
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
  const float* x;  // [n_rows, n_in]
  float* y;        // [n_rows, n_out]
};

// A prompt's rows as products take them: x [n_rows, n_in], or their RMS norms.
struct LinearInput {
  const float* x;
  const float* norm = nullptr;  // the norm's weights [n_in]
  float epsilon = 0;
};

// Where a prompt's product goes: y [n_rows, n_out].
struct LinearOutput {
  const LinearWeights* weights;
  float* y;
};

// Bytes of the weights that integer products lay out anew: of those that have integers.
uint64_t Int8Bytes(const ModelWeights& weights);
// Bytes of the layers' weights packed for prefill, but for a little that a library may pad them with: of
// those that are not multiplied as integers.
uint64_t PackedBytes(const ModelWeights& weights, ComputeType compute, const GemmKernels& gemm);

class LinearProducts {
 public:
  // keep_packed: what a prompt packs stays, PackedBytes of it.
  LinearProducts(const LinearKernels& kernels, ComputeType compute, bool keep_packed, ThreadPool& pool);

  // Lays weights out for integer products where that is the compute type and they have integers. Once for a
  // model.
  void Prepare(ModelWeights& weights) const;

  // Of many rows, a prompt's: y = x W^T + b, three products at most. Rows are unfinished where it was
  // cancelled, here and below.
  void Project(const LinearInput& input, std::span<const LinearOutput> outputs, int64_t n_rows,
               const CancelToken* cancel);
  // sums [n_rows, n_out] += x W^T + b
  void AddProjection(const LinearInput& input, const LinearOutput& sums, int64_t n_rows,
                     const CancelToken* cancel);
  // sums += down(silu(gate(input)) * up(input)). sums may be the input's x. (SwiGLU: Shazeer 2020.)
  void AddFeedForward(const LinearInput& input, const LayerWeights& layer, float* sums, int64_t n_rows,
                      const CancelToken* cancel);
  // Of few rows, a token each. All products have one x. Every row of weights is read once and meets all of
  // them.
  void Decode(std::span<const LinearProduct> products, int64_t n_rows);

  // Of working memory for each row of a prompt: what products read.
  uint64_t RowBytes(const ModelWeights& weights) const;
  // Of PackedBytes, where they are kept: of the weights that no prompt has packed yet.
  uint64_t UnpackedBytes(const ModelWeights& weights) const;
  // Memory for the rows of the largest prompt so far goes back to the system.
  void ForgetRows();

 private:
  // Weights as a prompt's products read them: packed, or as integers.
  struct Factor {
    const LinearWeights* weights;
    const Gemm* gemm = nullptr;  // null: integers
    const std::byte* packed = nullptr;
  };
  // Activations as a prompt's products read them: in each form that some of them do.
  struct Rows {
    int64_t k = 0;
    const Gemm* gemm = nullptr;  // any with this k, where some product has one
    bool integers = false;
    Buffer<std::byte> floats;
    Buffer<int8_t> p;
    Buffer<Int8BlockSums> blocks;
  };
  // What a task of a thread is done in.
  struct Scratch {
    Buffer<float> panel;  // one panel's weights de-quantised, [kPanel, k]
    Buffer<float> row;    // normalised
    Buffer<float> y, up;  // outputs of a block, [kTileRows, kPanel]
  };

  // body(neighbouring products of one kind, whether they have integers).
  template <typename Body>
  static void ForEachKind(std::span<const LinearProduct> products, const Body& body);
  // body(task, thread) for all tasks, or until it is cancelled.
  template <typename Body>
  void RunTasks(int64_t n_tasks, const CancelToken* cancel, const Body& body);
  // body(panel, row, n_rows, thread) for all blocks of n_panels panels by the rows of a prompt, or until it
  // is cancelled.
  template <typename Body>
  void RunBlocks(int64_t n_panels, const Rows& rows, int64_t n_rows, const CancelToken* cancel,
                 const Body& body);
  const Gemm& GemmFor(const TensorView& w);
  // The weights packed for their Gemm, at `packed`.
  void Pack(const TensorView& w, std::byte* packed);
  // Whether a prompt's product with them is in integers.
  bool PromptInIntegers(const LinearWeights& linear) const {
    return OfPrompts(compute_) == ComputeType::kInt8 && linear.integers != nullptr;
  }
  // Until the next call.
  std::span<const Factor> Factors(std::span<const LinearWeights* const> weights);
  static void SetForms(std::span<const Factor> factors, int64_t n_rows, Rows& rows);  // makes room for n_rows
  void Place(const float* x, int64_t n, int64_t row, int64_t column, Rows& rows) const;
  // The factors of `weights`, with the input as they read it in input_.
  std::span<const Factor> PlaceInput(const LinearInput& input, std::span<const LinearWeights* const> weights,
                                     int64_t n_rows, const CancelToken* cancel);
  // Outputs of panel `panel` and rows [row, row + n_rows) of a block, with the bias.
  void MultiplyBlock(const Factor& factor, const Rows& rows, int64_t panel, int64_t row, int64_t n_rows,
                     float* y, int64_t y_stride, int thread) const;
  // sums += what `rows` make with `factor`.
  void AddProducts(const Factor& factor, const Rows& rows, float* sums, int64_t n_rows,
                   const CancelToken* cancel);
  // Outputs [begin, end) of all rows.
  void MultiplyVectors(const LinearProduct& product, int64_t begin, int64_t end, int64_t n_rows) const;
  // A token's rows, quantised.
  Int8Rows Quantise(const LinearProduct& product, int64_t n_rows);

  LinearKernels kernels_;
  ComputeType compute_;
  bool keep_packed_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<Gemm>> gemms_;                          // one for each shape of weights
  std::vector<Scratch> scratch_;                                      // per thread
  std::unordered_map<const LinearWeights*, Buffer<std::byte>> kept_;  // packed, where they are to be kept
  Buffer<std::byte> packed_;                                          // else those of one call
  std::vector<Factor> factors_;                                       // of one call
  Rows input_, hidden_;  // of a prompt's products; hidden_: between the feed-forward's
  Buffer<int8_t> p_;     // of a token's
  Buffer<Int8BlockSums> blocks_;
};

}  // namespace longheads
