// The one C++ API that applications see: load a model, keep sessions, read prompts, generate. Nothing here
// prints, and what goes wrong comes back as an Error with the session as it was. Calls that return no Result
// throw std::bad_alloc where memory is short. One thread at a time may use an engine and its sessions.
//
// Tokens, sizes and rows are the user's. Where an attention method inserts tokens of its own into what the
// model reads (landmarks), it does so unseen, in prompts and in answers: the hidden state of a token that an
// inserted one follows is the inserted one's, since the text goes on from there, and no answer holds an
// inserted token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/insertion.h"
#include "engine/sampler.h"
#include "formats/gguf.h"
#include "model/transformer.h"
#include "rope/overrides.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

struct EngineOptions {
  std::string model_path = {};
  std::string attention = "auto";  // --attn
  std::string compute = "auto";    // auto, f32, bf16, int8, bf16-int8
  std::string packed_weights =
      "auto";                    // on: kept for all prompts to come; off; auto: bf16's, where memory allows
  std::string kv_type = "auto";  // auto (as compute), f32, bf16, q8
  std::string backend = "auto";  // kBackends
  // What texts may take of memory (0: no limit), the folder for keys and values that then do not fit, and how
  // much of it may be used (0: as the disk allows). A method's state and tables of pages stay in memory
  // whatever the limit is, and so do a few pages.
  uint64_t kv_ram = 0;
  std::string kv_disk = "/var/tmp";
  uint64_t kv_disk_max = 0;
  int64_t block_parts = BlockFit::kMostParts;  // kLeastParts .. kMostParts
  bool kv_may_leave = false;  // also without a limit: sessions come from context files, or go to them
  int threads = 0;            // 1 .. 1024; 0: the physical cores that this process may use
  RopeOverrides rope = {};    // --rope-..., --yarn-...: said in the model file's place
  // For measurements: gives the layers' attention instead of `attention`.
  std::function<Result<std::vector<LayerAttention>>(const AttentionModel&)> make_attention = {};
};

// One text: its tokens, and what the model remembers of them. Moves; Engine::Fork copies.
class Session {
 public:
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<TokenId>& tokens() const { return tokens_; }

 private:
  friend class Engine;
  friend class SessionArchive;
  explicit Session(SequenceState state) : state_(std::move(state)) {}
  enum class Fed : uint8_t { kBeginsCall, kGoesOn, kDecoded };  // the first two: with a prompt
  void MakeRoom();                                              // for one more token

  SequenceState state_;
  std::vector<TokenId> tokens_;
  std::vector<Fed> fed_;  // how each token was: Truncate feeds some again, the same way
};

// The longest text that is planned for: more than anyone asks for, and few enough that what it takes of any
// model (model/config.cc) can be said in 64 bits.
inline constexpr int64_t kMostTokens = int64_t{1} << 34;

// What a process takes beside its plan, whatever the text: the program and its libraries, the vocabulary's
// tables, each thread's scratch. Peaks are held to it by tests/cli/test_memory.py, on 1, 2 and 4 threads.
inline constexpr uint64_t kProgramBytes = 48 << 20;

// Bytes. The process's peak is not more than 5% above the total and kProgramBytes.
struct MemoryPlan {
  uint64_t weights = 0;  // mapped from the file, and laid out anew
  // Activations, one layer's weights de-quantised unless all are kept packed, and what a call keeps of the
  // state as it was.
  uint64_t working = 0;
  uint64_t kv = 0;            // keys and values of the text, as many as may be in memory
  uint64_t tables = 0;        // what is known of each page, wherever it is
  uint64_t state = 0;         // representations and the like
  uint64_t large_blocks = 0;  // activations of a long text's blocks, beyond those of a short one's
  uint64_t disk = 0;          // keys and values that do not fit: all of them pass through the disk then
  // What EngineOptions::kv_ram is the limit of.
  uint64_t text() const { return kv + tables + state + large_blocks; }
  uint64_t total() const { return weights + working + text(); }
};

// Floating-point operations.
struct ComputeCost {
  double weights = 0;    // the linear layers and the vocabulary
  double attention = 0;  // queries with keys, and values
  double choosing = 0;   // what the method does to choose keys
  double total() const { return weights + attention + choosing; }
};

struct GenerateOptions {
  int64_t max_tokens = 256;  // none are generated where it is 0 or less
  SamplerOptions sampling = {};
  const CancelToken* cancel = nullptr;
  // Each token as it comes, with the text that is whole by now. Returning false stops.
  std::function<bool(TokenId, std::string_view)> on_token = {};
};

enum class StopReason : uint8_t { kEndOfGeneration, kLength, kCancelled, kCaller };

struct Generated {
  std::vector<TokenId> tokens;  // without the one that ended it
  std::string text;
  StopReason reason = StopReason::kLength;
};

class Engine {
 public:
  // Maps the model and makes everything but the text's memory. Refuses, with a sentence on what to change: a
  // file that is no whole model of a known family, a method that cannot apply to it, an implementation that
  // this processor cannot run. A `backend` by name holds for the whole process: oneDNN is told once.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options);
  ~Engine();
  // What calls report that found no memory.
  static Error OutOfMemory();

  const ModelConfig& config() const { return transformer_->config(); }
  const GgufFile& file() const { return *file_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Null where the file has no template, or one that is not known (then chat_template_error says so).
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  const std::string& chat_template_error() const { return chat_template_error_; }

  ComputeType compute() const { return compute_; }
  KvType kv_type() const { return kv_type_; }
  // Since the engine was loaded, of all layers.
  AttentionCounts attention_counts() const { return transformer_->attention_counts(); }
  const KvGeometry& kv_geometry() const { return transformer_->kv_pool()->geometry(); }
  // Between memory and disk, since the engine was loaded.
  KvTraffic kv_traffic() const { return transformer_->kv_pool()->traffic(); }
  int threads() const { return pool_->n_threads(); }
  // "avx2 (attention), avx2 (GEMM), ..." in short.
  std::string DescribeKernels() const;
  // As it was loaded with.
  const std::string& attention_spec() const { return attention_spec_; }
  const AttentionModel& attention_model() const { return attention_model_; }  // what its method was made for
  const RopeOverrides& rope() const { return rope_; }
  // What the attention method does at which length, for a text of n tokens where that is known; may be empty.
  std::string ExplainAttention(int64_t n_tokens = 0) const;
  // Sentences for who is about to read so many: what the attention method warns of; a file that memory does
  // not hold, of which every token, or block of a prompt, reads some from disk again; and a --kv-ram that is
  // less than what stays in memory.
  std::vector<std::string> Warnings(int64_t n_tokens) const;
  MemoryPlan PlanMemory(int64_t n_tokens) const;  // n_tokens: at most 2 * kMostTokens
  uint64_t kv_ram() const { return kv_ram_; }
  // Of that, what texts take now beside their pages.
  uint64_t reserved_bytes() const { return transformer_->kv_pool()->reserved_bytes(); }
  // Whether all that is kept in memory of such a text is within that, or nothing was said.
  bool KeepsToRam(int64_t n_tokens) const { return kv_ram_ == 0 || PlanMemory(n_tokens).text() <= kv_ram_; }
  // Whether memory, and the disk where pages leave it, have room for n_new tokens more: kOutOfMemory or kIo,
  // with the option to change, where they have not. Prefill looks itself; who generates much behind
  // it looks before, for both: `n_generated` of the tokens are an answer's, at most.
  Status CheckMemory(const Session& session, int64_t n_new, int64_t n_generated = 0) const;
  // The memory for a text that is opened, of which nothing is there yet.
  Status CheckOpening(int64_t n_tokens) const;
  // Of a prompt of n_tokens, and of generating the token after n_tokens - 1 others.
  ComputeCost PlanPrefill(int64_t n_tokens) const;
  ComputeCost PlanDecode(int64_t n_tokens) const;
  // Bytes that generating it must read: weights as the file has them, so many keys and values of all layers
  // (AttentionCounts) as they are stored, and of the method's state what it chooses by.
  double DecodeBytes(int64_t n_tokens, double keys_read) const;

  // The prompt as token ids: in the chat form, the template around one user message; else the text as it
  // stands, with BOS where the vocabulary asks for it.
  Result<std::vector<TokenId>> EncodePrompt(std::string_view text, bool chat,
                                            const CancelToken* cancel = nullptr) const;

  // Says how long the texts will be, prompt and answer, before there are sessions. Methods that choose by it
  // ("dynamic-ntk", "self-extend,group=auto") do so now; until then they stand for the trained window.
  // Whether that changed the attention: sessions from before must not be used any more then. Who keeps a text
  // for another process keeps n_tokens with it: its states are those of this length (model/sequence_state.h).
  Result<bool> ExpectText(int64_t n_tokens);
  // Whether the method is one of those.
  bool FollowsTextLength() const;
  // A prompt may be fed to Prefill in two calls instead of one, without a change of any bit, behind multiples
  // of so many tokens; 0: nowhere.
  int64_t CallUnit() const;

  // Tokens that Prefill best reads in one call behind so many, where a long text is read in several: what
  // goes through a layer together. All of it where the calls matter (CallUnit).
  int64_t BlockBehind(int64_t n_tokens) const;
  // What such blocks are fitted to: the engine's own --kv-ram and --kv-blocks, or those of another whose
  // blocks are to be repeated; bytes are at most 2^48.
  BlockFit block_fit() const {
    const BlockFit fit = transformer_->block_fit();
    return {.ram = std::min(fit.ram, int64_t{1} << 48), .parts = fit.parts};
  }
  void FitBlocksTo(const BlockFit& fit) { transformer_->FitBlocksTo(fit); }
  // Tokens of a block behind n others, were there so many parts.
  int64_t TokenBlock(int64_t n, int64_t parts) const {
    return transformer_->TokenBlock(n, {.ram = block_fit().ram, .parts = parts});
  }
  // The folder of keys and values that do not fit into memory; empty: they stay there.
  std::string kv_folder() const { return transformer_->kv_pool()->on_disk() ? kv_disk_ : ""; }

  Session NewSession() const;
  Session Fork(const Session& session) const;
  // Forgets tokens [n, size), 0 <= n <= size: the session is then bit for bit one that has read the others
  // alone, in the same calls. Where the method cannot go back to it, the last few are fed again; should that
  // fail, the session is as it was. But where CallUnit is 0, a prompt's tokens saw how long it was, or that
  // they were not its last: cut inside a prompt, they stay as they were read.
  Status Truncate(Session& session, int64_t n);

  // What the method counted over a session's text, by name, summed over layers; of most methods nothing.
  std::vector<PolicyCounter> Counters(const Session& session) const;

  // Appends a prompt of at least one token. Gives the final hidden states, normalised: nothing, of the last
  // token [embed_dim], or of all [n_tokens, embed_dim] (see Logits). On an error the session is as it was.
  Result<std::vector<float>> Prefill(Session& session, std::span<const TokenId> tokens, Outputs outputs,
                                     const ForwardControl& control);
  // Appends one token to each of several sessions, all different; hidden states [n_sessions, embed_dim]. On
  // an error all sessions are as they were.
  Result<std::vector<float>> Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens);
  // The same into memory of the caller's: allocates nothing inside a page and chunk.
  Status Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                std::vector<float>& hidden);

  // Who hears, from now on, what heads choose and see, and in which blocks they choose: sequences are those
  // of the call that runs, and tokens are the model's, inserted ones included. Null: nobody. It must live
  // until another takes its place.
  void SetObserver(SelectionObserver* observer) { transformer_->SetObserver(observer); }
  std::optional<BlockGrid> SelectionBlocks() const;
  // Texts as the model reads them, and their sizes.
  std::vector<TokenId> ModelTokens(std::span<const TokenId> tokens) const {
    return insertion_.Into(tokens, 0);
  }
  int64_t ModelSize(int64_t n_tokens) const { return insertion_.ModelSize(n_tokens); }

  // logits [n_rows, vocab_size] of hidden states [n_rows, embed_dim].
  std::vector<float> Logits(std::span<const float> hidden);

  // Answers: samples from the last hidden state (as Prefill gave it) on. The session takes every token of the
  // answer but the last one, which nothing has followed yet; on an error it keeps those it has taken.
  Result<Generated> Generate(Session& session, std::span<const float> hidden, const GenerateOptions& options);

 private:
  friend class SessionArchive;
  Engine();
  // Runs `work` on one session and puts the session back as it was if it fails or throws.
  Status Guard(Session& session, const std::function<Status()>& work);
  // The most tokens m <= n from which feeding [m, n) again gives a session that has read n.
  int64_t RewindPoint(const Session& session, int64_t n) const;
  Status CheckDisk(const Session& session, int64_t n_new) const;
  // Whether so many bytes of a plan are free; else "WHAT take ... of memory, but".
  Status CheckFits(uint64_t bytes, const MemoryPlan& plan, const std::string& what) const;
  // After a decode step: lets sessions read the inserted tokens that are due, and takes over their rows.
  Status DecodeInserted(std::span<Session* const> sessions, std::vector<float>& hidden);

  std::string attention_spec_;  // empty where it was given otherwise
  RopeOverrides rope_;
  AttentionModel attention_model_;  // what attention is made for
  // Floating-point operations: of all linear layers for a token; of the vocabulary's product; and the
  // attention of a sequence's n-th token, added so many times.
  double LayerCost() const;
  double VocabularyCost() const;
  void AddAttention(int64_t n, Phase phase, double times, ComputeCost& cost) const;

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::string chat_template_error_;
  std::unique_ptr<ThreadPool> pool_;
  KernelChoice kernels_;
  ComputeType compute_ = ComputeType::kF32;
  bool reads_file_ = true;  // weights that tokens or prompts multiply, once all is laid out
  KvType kv_type_ = KvType::kF32;
  uint64_t weight_bytes_ = 0;
  uint64_t kv_ram_ = 0;                 // 0: pages stay in memory
  std::shared_ptr<PageFile> overflow_;  // where pages go that leave it, but for those of a context file
  std::string kv_disk_;
  uint64_t kv_disk_max_ = 0;
  std::unique_ptr<Transformer> transformer_;
  Insertion insertion_;
  std::vector<BatchItem> batch_;        // of the decode step that runs
  std::vector<float> inserted_hidden_;  // of its inserted tokens
};

}  // namespace longheads
