// The forward pass: one for prefill and decode, for every family. Which method attends is data too.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/registry.h"
#include "attention/runner.h"
#include "base/cancel.h"
#include "base/thread_pool.h"
#include "kernels/gemm.h"
#include "kernels/quantised.h"
#include "kernels/vector_ops.h"
#include "model/block_fit.h"
#include "model/config.h"
#include "model/linear_products.h"
#include "model/sequence_state.h"
#include "model/weights.h"

namespace longheads {

// The chosen implementation of every operation.
struct KernelChoice {
  Implementation<AttentionKernels> attention;
  Implementation<GemmKernels> gemm;
  Implementation<Int8Kernels> int8;
  Implementation<QuantisedKernels> quantised;
  Implementation<VectorKernels> vector;
};

// `backend` is "auto" or a name of kBackends.
Result<KernelChoice> ChooseKernels(std::string_view backend);

// One sequence's share of a batch: new tokens that follow those its state holds.
struct BatchItem {
  SequenceState* sequence;
  std::span<const int32_t> tokens;  // prefill: any number; decode: one
};

enum class Outputs : uint8_t { kNone, kLast, kAll };

struct ForwardControl {
  const CancelToken* cancel = nullptr;
  // Called after each layer of each token block with the share of the work that is done, 0 .. 1.
  std::function<void(double)> progress = {};
};

class Transformer {
 public:
  // The weights' file must outlive the transformer. keep_packed: LinearProducts'.
  Transformer(const ModelConfig& config, ModelWeights weights, std::vector<LayerAttention> attention,
              const KernelChoice& kernels, ComputeType compute, KvType kv_type, ThreadPool& pool,
              bool keep_packed = false);
  ~Transformer();

  const ModelConfig& config() const { return config_; }
  const std::vector<LayerAttention>& attention() const { return attention_; }
  const std::shared_ptr<KvPool>& kv_pool() const { return kv_pool_; }

  // In the place of what attended before; sequences from before must not be used any more.
  void SetAttention(std::vector<LayerAttention> attention);

  // Who hears what heads choose and see, in every layer; null: nobody.
  void SetObserver(SelectionObserver* observer) { runner_.observer = observer; }
  // Since this was made, of all layers.
  AttentionCounts attention_counts() const { return runner_.counts(); }

  SequenceState NewSequence() const;
  // Where pages leave memory they make room for what the sequence takes beside them when it has n tokens;
  // Forward does this for the tokens to come, and whoever cuts a sequence, or fills it with a saved text, for
  // what there is. Throws std::bad_alloc where that has become more.
  void ReserveFor(SequenceState& sequence, int64_t n_tokens) const;

  // Appends each item's tokens to its sequence and gives the final hidden states, normalised: for kLast one
  // row [embed_dim] per item, for kAll one per token, item after item. Decode takes one token per item. On an
  // error, and on what is thrown, sequences may hold part of the tokens: truncate them to what they held.
  Status Forward(std::span<const BatchItem> items, Phase phase, Outputs outputs,
                 const ForwardControl& control, std::vector<float>& hidden);

  // logits [n_rows, vocab_size] of hidden [n_rows, embed_dim].
  void Logits(std::span<const float> hidden, std::span<float> logits);

  // Bytes of the weights that are laid out anew, beside those in the file: at once, or by the first prompt.
  uint64_t PreparedBytes() const;
  uint64_t UnpackedBytes() const {
    return linear_.UnpackedBytes(weights_);
  }  // of these, what is still to come
  // What a sequence of n tokens takes beside its pages: tables of where they are, the policies' states in all
  // layers, and near keys (attention/near_keys.h).
  uint64_t TableBytes(int64_t n_tokens) const;
  uint64_t PolicyBytes(int64_t n_tokens) const;
  // Of the policies' states, what a fork has for itself as soon as it goes on.
  uint64_t RewrittenBytes(int64_t n_tokens) const;
  // What a call keeps of them as it was, until it has succeeded, beside what it leaves as it is. A text of
  // one block of tokens is read by one call, which finds nothing to add to.
  uint64_t KeptBytes(int64_t n_tokens) const;
  uint64_t NearBytes(int64_t n_tokens) const;
  // Bytes, in the file, of the weights that every decoded token meets.
  uint64_t DecodeWeightBytes() const;
  // Bytes of working memory that a prefill of n tokens takes beside weights and cache; and those of them that
  // are taken from the pages', where these leave memory: of blocks that are larger only for that.
  uint64_t WorkingBytes(int64_t n_tokens) const {
    return BlockBytes(LargestBlock(n_tokens)) + RotationBytes(n_tokens) + TierBytes(n_tokens);
  }
  uint64_t LargeBlockBytes(int64_t n_tokens) const { return BeyondUsualBlock(LargestBlock(n_tokens)); }

  // Tokens that go through a layer together: each weight is de-quantised once per so many, or the nearest
  // whole steps of the policies.
  static constexpr int64_t kTokenBlock = 2048;
  // The same behind n tokens of a sequence: more, where pages leave memory and come back for every block.
  int64_t TokenBlock(int64_t n) const { return TokenBlock(n, block_fit()); }
  int64_t TokenBlock(int64_t n, const BlockFit& fit) const;
  // What these blocks are fitted to: what the store and its disk allow, or what another process had that is
  // to be repeated in the same blocks.
  BlockFit block_fit() const {
    return {.ram = block_fit_.ram > 0 ? block_fit_.ram : kv_pool_->ram_bytes(), .parts = block_fit_.parts};
  }
  void FitBlocksTo(const BlockFit& fit) { block_fit_ = fit; }

 private:
  struct Activations;
  struct Decode;

  // Tokens [begin, end) of a prompt.
  Status PrefillBlock(SequenceState& sequence, std::span<const int32_t> prompt, int64_t begin, int64_t end,
                      const ForwardControl& control, double done, double share);
  // Pages make room for the activations of a block of n tokens behind others.
  void ReserveForBlock(int64_t n, int64_t behind);
  Status DecodeStep(std::span<const BatchItem> items);
  void Embed(int32_t token, float* out) const;
  // Rotations of a layer for so many tokens are below this.
  int64_t MostPositions(std::size_t layer, int64_t n_tokens) const;
  Status EnsureRotations(int64_t n_tokens);
  uint64_t RotationBytes(int64_t n_tokens) const;
  // Where pages may leave memory: frames that are idle where a text comes near to filling it; where they are
  // packed, what threads unpack and what goes to disk.
  uint64_t TierBytes(int64_t n_tokens) const;
  uint64_t MostActivationBytes() const;  // of a token, under any compute type
  int64_t LargestBlock(int64_t n_tokens) const { return std::min(n_tokens, TokenBlock(n_tokens)); }
  // Of working memory, for a block of n tokens: all of it, and more than one at the beginning of a text
  // takes.
  uint64_t BlockBytes(int64_t n_tokens) const;
  uint64_t BeyondUsualBlock(int64_t n_tokens) const {
    return BlockBytes(n_tokens) - BlockBytes(std::min(n_tokens, TokenBlock(0)));
  }
  // In a call after which the sequence has n_end tokens.
  AttendingSequence Attending(SequenceState& sequence, int64_t layer, int64_t n_end) const;

  ModelConfig config_;
  ModelWeights weights_;
  std::vector<LayerAttention> attention_;
  KernelChoice kernels_;
  ComputeType compute_;
  bool keep_packed_;
  ThreadPool& pool_;
  HeadShape shape_;
  std::shared_ptr<KvPool> kv_pool_;
  BlockFit block_fit_;
  std::vector<std::shared_ptr<RotationTable>> rotations_;  // per layer; layers of equal frequencies share
  std::vector<float> scales_;                              // per layer: logit scale
  // Of the call that runs, where frequencies follow the length: for each length that a sequence comes to.
  std::vector<std::pair<int64_t, std::unique_ptr<RotationTable>>> following_;
  AttentionRunner runner_;
  LinearProducts linear_;
  std::unique_ptr<Activations> prefill_;  // of a token block
  KvReservation reserved_;                // of what it takes beyond the usual
  std::unique_ptr<Decode> decode_;
};

}  // namespace longheads
