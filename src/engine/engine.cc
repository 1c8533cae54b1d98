#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>
#include <system_error>

#include "base/bytes.h"
#include "base/cores.h"
#include "base/memory.h"
#include "engine/block_parts.h"
#include "engine/esa_compression.h"
#include "model/gguf_vocabulary.h"
#include "tokenizer/chat_prompt.h"

namespace longheads {
namespace {

// What was fastest for prompts of all lengths and for tokens, on AVX2 and on AVX-512 with VNNI
// (docs/performance.md): integers, where all weights have them and laying them out leaves as much memory for
// texts. With AMX prompts of a hundred tokens and more are faster in bfloat16, and tokens in integers there
// too.
ComputeType FastestCompute(const ModelWeights& weights, const Implementation<GemmKernels>& gemm) {
  const uint64_t without = SumOverLinears(
      weights, [](const LinearWeights& linear) -> uint64_t { return HasIntegers(linear.w.type) ? 0 : 1; });
  if (without == 0 && Int8Bytes(weights) <= AvailableMemory() / 2)
    return gemm.name == "amx" ? ComputeType::kBF16Int8 : ComputeType::kInt8;
  return gemm.table->native_bf16 ? ComputeType::kBF16 : ComputeType::kF32;
}

Result<ComputeType> ComputeFromName(const std::string& name, const ModelWeights& weights,
                                    const Implementation<GemmKernels>& gemm) {
  if (name == "auto") return FastestCompute(weights, gemm);
  if (name == "f32") return ComputeType::kF32;
  if (name == "bf16") return ComputeType::kBF16;
  if (name == "int8") return ComputeType::kInt8;
  if (name == "bf16-int8") return ComputeType::kBF16Int8;
  return InvalidInput(fmt::format("--compute is '{}', but must be auto, f32, bf16, int8 or bf16-int8", name));
}

// Whether integer products have something to multiply, and room for the weights that they lay out anew.
Status CheckInt8(const ModelWeights& weights, ComputeType compute, const std::string& path) {
  const uint64_t bytes = Int8Bytes(weights);
  if (bytes == 0) {
    return InvalidInput(
        fmt::format("--compute {}: the weights of {} are not quantised; use --compute f32 or bf16",
                    NameOf(compute), path));
  }
  const uint64_t available = AvailableMemory();
  if (bytes > available) {
    return MakeError(
        ErrorKind::kOutOfMemory,
        fmt::format(
            "--compute {} lays out {} of weights anew, and there are {} of memory: free some, or use "
            "--compute f32 or bf16, which multiply them as they are in the file (a saved text keeps to "
            "what it was read with)",
            NameOf(compute), FormatBytes(bytes), FormatBytes(available)));
  }
  return {};
}

// Whether weights that prompts multiply as floats stay packed. By themselves where two bytes hold one and
// three quarters of the memory that is free beside integers are left for texts: float32's take twice as much
// and save little (docs/performance.md).
Result<bool> KeepsPacked(const std::string& name, ComputeType compute, const GemmKernels& gemm,
                         const ModelWeights& weights) {
  if (name != "auto" && name != "on" && name != "off") {
    return InvalidInput(fmt::format("--packed-weights is '{}', but must be auto, on or off", name));
  }
  if (name == "off") return false;
  if (OfPrompts(compute) == ComputeType::kInt8) {
    if (name == "auto") return false;
    return InvalidInput(
        "--packed-weights on has no effect where prompts are multiplied in int8, as here: leave it out, or, "
        "where no context file says how, name another --compute");
  }
  const uint64_t bytes = PackedBytes(weights, compute, gemm), free = AvailableMemory();
  const uint64_t integers = TokensInIntegers(compute) ? Int8Bytes(weights) : 0;  // laid out before
  const uint64_t available = free - std::min(free, integers);
  if (name == "auto")
    return OfPrompts(compute) == ComputeType::kBF16 && gemm.native_bf16 && bytes <= available / 4;
  if (bytes <= available) return true;
  return MakeError(ErrorKind::kOutOfMemory,
                   fmt::format("--packed-weights on keeps {} of packed weights, and there are {} of memory: "
                               "free some, or use --packed-weights off, which packs them for every prompt",
                               FormatBytes(bytes), FormatBytes(available)));
}

Result<KvType> KvTypeFromName(const std::string& name, ComputeType compute) {
  if (name == "auto") return compute == ComputeType::kF32 ? KvType::kF32 : KvType::kBF16;
  if (name == "f32") return KvType::kF32;
  if (name == "bf16") return KvType::kBF16;
  if (name == "q8") return KvType::kQ8;
  return InvalidInput(fmt::format("--kv-type is '{}', but must be auto, f32, bf16 or q8", name));
}

}  // namespace

Error Engine::OutOfMemory() {
  return {
      ErrorKind::kOutOfMemory,
      "out of memory: use a shorter text, a smaller model, --kv-type q8, or --kv-ram SIZE, which keeps the "
      "rest of a text on disk ('longheads info -c N' shows what a text of N tokens takes)"};
}

Engine::Engine() = default;
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) try {
  std::unique_ptr<Engine> engine(new Engine);
  LH_ASSIGN(GgufFile file, GgufFile::Open(options.model_path));
  engine->file_ = std::make_unique<GgufFile>(std::move(file));
  LH_ASSIGN(ModelConfig config, ReadConfig(*engine->file_));
  LH_ASSIGN(config.rope, WithOverrides(config.rope, options.rope));
  config.trained_window = DeclaredWindow(config.rope);
  LH_ASSIGN(ModelWeights weights, ReadWeights(*engine->file_, config));
  LH_ASSIGN(Vocabulary vocabulary, ReadVocabulary(*engine->file_));
  if (static_cast<int64_t>(vocabulary.tokens.size()) > config.vocab_size) {
    return InvalidInput(fmt::format("{}: the vocabulary has {} tokens, but the embedding only {} rows",
                                    options.model_path, vocabulary.tokens.size(), config.vocab_size));
  }
  LH_ASSIGN(engine->tokenizer_, Tokenizer::Create(std::move(vocabulary)));
  LH_ASSIGN(const std::optional<std::string> text, ReadChatTemplateText(*engine->file_));
  if (text) {
    Result<ChatTemplate> known = ChatTemplate::Recognise(*text);
    if (known) {
      engine->chat_template_ = *known;
    } else {
      engine->chat_template_error_ = known.error().message;
    }
  } else {
    engine->chat_template_error_ = "the model file has no chat template: use --no-chat";
  }

  LH_ASSIGN(Frequencies frequencies, DeclaredFrequencies(config.rope, config.trained_window));
  AttentionModel& model = engine->attention_model_;
  model.shape = {.n_heads = config.n_heads, .n_kv_heads = config.n_kv_heads, .head_dim = config.head_dim};
  model.n_layers = config.n_layers;
  model.vocab_size = config.vocab_size;
  model.trained_window = config.trained_window;
  model.layout = config.layout;
  model.rope = config.rope;
  model.trained = std::move(frequencies);
  model.find_token = [&tokenizer = *engine->tokenizer_](std::string_view token) -> std::optional<int32_t> {
    const std::vector<std::string>& tokens = tokenizer.vocabulary().tokens;
    const auto found = std::find(tokens.begin(), tokens.end(), token);
    if (found == tokens.end()) return std::nullopt;
    return static_cast<int32_t>(found - tokens.begin());
  };
  // The model lives in the engine, and as long.
  model.esa_projections = [&file = engine->file(), &model](int64_t distance) {
    return FindEsaProjections(file, distance, model);
  };
  if (!options.make_attention) engine->attention_spec_ = options.attention;
  engine->rope_ = options.rope;
  LH_ASSIGN(std::vector<LayerAttention> attention,
            options.make_attention ? options.make_attention(model) : MakeAttention(options.attention, model));
  engine->insertion_ = Insertion(attention.front().policy->Inserts());

  LH_ASSIGN(engine->kernels_, ChooseKernels(options.backend));
  LH_ASSIGN(engine->compute_, ComputeFromName(options.compute, weights, engine->kernels_.gemm));
  if (TokensInIntegers(engine->compute_)) LH_TRY(CheckInt8(weights, engine->compute_, options.model_path));
  LH_ASSIGN(const bool keep_packed,
            KeepsPacked(options.packed_weights, engine->compute_, *engine->kernels_.gemm.table, weights));
  LH_ASSIGN(engine->kv_type_, KvTypeFromName(options.kv_type, engine->compute_));
  constexpr int kMostThreads = 1024;
  if (options.threads < 0 || options.threads > kMostThreads) {
    return InvalidInput(
        fmt::format("--threads is {}, but must be between 1 and {}, or 0 for the physical cores",
                    options.threads, kMostThreads));
  }
  LH_TRY(CheckBlockParts(options.block_parts));
  engine->pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : PhysicalCores());
  engine->weight_bytes_ = engine->file_->file_bytes();
  engine->reads_file_ = !TokensInIntegers(engine->compute_) ||
                        (OfPrompts(engine->compute_) != ComputeType::kInt8 && !keep_packed);
  engine->transformer_ =
      std::make_unique<Transformer>(config, std::move(weights), std::move(attention), engine->kernels_,
                                    engine->compute_, engine->kv_type_, *engine->pool_, keep_packed);
  if (options.kv_ram > 0 || options.kv_may_leave) {
    const KvGeometry& geometry = engine->transformer_->kv_pool()->geometry();
    LH_ASSIGN(std::shared_ptr<PageFile> pages,
              TemporaryPageFile::Create(options.kv_disk, static_cast<uint64_t>(geometry.PageStride()),
                                        options.kv_disk_max));
    LH_TRY(engine->transformer_->kv_pool()->UseDisk(
        {.ram_bytes = options.kv_ram > 0 ? options.kv_ram : UINT64_MAX,
         .most_pinned = engine->threads() * AttentionExecutor::kPagesTogether,
         .file = pages}));
    engine->overflow_ = std::move(pages);
    engine->kv_ram_ = options.kv_ram;
    engine->kv_disk_ = options.kv_disk;
    engine->kv_disk_max_ = options.kv_disk_max;
    engine->FitBlocksTo({.parts = options.block_parts});
  }
  return engine;
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(OutOfMemory());
} catch (const std::system_error& error) {
  return MakeError(
      ErrorKind::kOutOfMemory,
      fmt::format("the threads could not be started ({}): use fewer, with --threads", error.what()));
}

std::string Engine::DescribeKernels() const {
  std::string products;
  if (compute_ != ComputeType::kInt8)
    products = fmt::format("GEMM {} in {}, ", kernels_.gemm.name, NameOf(OfPrompts(compute_)));
  products += TokensInIntegers(compute_) ? fmt::format("products {} in int8", kernels_.int8.name)
                                         : fmt::format("weights {}", kernels_.quantised.name);
  const bool bf16 = kernels_.attention.table->attend_bf16 != nullptr && kv_type_ == KvType::kBF16;
  return fmt::format("attention {} in {}, {}, KV {}", kernels_.attention.name, bf16 ? "bf16 and f32" : "f32",
                     products, NameOf(kv_type_));
}

std::string Engine::ExplainAttention(int64_t n_tokens) const {
  const LayerAttention& layer = transformer_->attention()[0];
  std::string text;
  if (!layer.explain_frequencies.empty()) text += layer.explain_frequencies + "; ";
  if (layer.picked_by_auto && n_tokens > 0) {
    text += n_tokens <= layer.window
                ? fmt::format("auto: {} tokens fit the window of {}, and are read with full attention; ",
                              n_tokens, layer.window)
                : fmt::format("auto: {} tokens are more than the window of {}, and heads select behind it; ",
                              n_tokens, layer.window);
  }
  text += layer.policy->Explain();
  // The method's sentence tells its sizes; this, every option that is not as the documentation has it.
  if (!layer.options.empty()) text += fmt::format(" [{}]", layer.options);
  return text;
}

std::vector<std::string> Engine::Warnings(int64_t n_tokens) const {
  std::vector<std::string> warnings;
  std::string of_method = transformer_->attention()[0].policy->Warning(n_tokens);
  if (!of_method.empty()) warnings.push_back(std::move(of_method));
  if (const uint64_t memory = AvailableMemory(); reads_file_ && weight_bytes_ > memory) {
    warnings.push_back(
        fmt::format("the model's file is {}, and {} of memory are free: what does not fit is read from disk "
                    "again for every {}, which is slow; free some, or use a smaller model",
                    FormatBytes(weight_bytes_), FormatBytes(memory),
                    TokensInIntegers(compute_) ? "block of a prompt" : "token"));
  }
  const MemoryPlan plan = PlanMemory(n_tokens);
  const uint64_t least = plan.text() - plan.large_blocks;  // blocks are made smaller where memory is short
  if (kv_ram_ > 0 && least > kv_ram_) {
    warnings.push_back(fmt::format(
        "texts may take {} of memory (--kv-ram; a context file, without it, half of what is free), but of {} "
        "tokens {} stay in memory whatever it says, as only keys and values leave it: raise it to "
        "that, or use a shorter text or another method",
        FormatBytes(kv_ram_), n_tokens, FormatBytes(least)));
  }
  return warnings;
}

MemoryPlan Engine::PlanMemory(int64_t n_tokens) const {
  const int64_t n = insertion_.ModelSize(n_tokens);
  MemoryPlan plan;
  plan.weights = weight_bytes_ + transformer_->PreparedBytes();
  const KvGeometry& geometry = transformer_->kv_pool()->geometry();
  const auto n_pages = static_cast<uint64_t>(geometry.PagesFor(n));
  const bool on_disk = transformer_->kv_pool()->on_disk();
  plan.kv = n_pages * static_cast<uint64_t>(on_disk ? geometry.PageStride() : geometry.PageBytes());
  plan.tables = transformer_->TableBytes(n);
  plan.state = transformer_->PolicyBytes(n) + transformer_->NearBytes(n);
  plan.large_blocks = transformer_->LargeBlockBytes(n);
  plan.working = transformer_->WorkingBytes(n) - plan.large_blocks + transformer_->KeptBytes(n);
  if (kv_ram_ > 0) {
    const uint64_t near = transformer_->kv_pool()->PageBytesBeside(plan.text() - plan.kv);
    if (plan.kv > near) plan.disk = std::exchange(plan.kv, near);
  }
  return plan;
}

ComputeCost Engine::PlanPrefill(int64_t n_tokens) const {
  // What a token costs bends where methods begin to choose, and hardly elsewhere.
  constexpr int64_t kSamples = 1024;
  const int64_t n = insertion_.ModelSize(n_tokens);
  const int64_t n_samples = std::min(n, kSamples);
  ComputeCost cost{.weights = static_cast<double>(n) * LayerCost() + VocabularyCost()};
  for (int64_t i = 0; i < n_samples; ++i) {
    AddAttention(i * n / n_samples + 1, Phase::kPrefill,
                 static_cast<double>(n) / static_cast<double>(n_samples), cost);
  }
  return cost;
}

ComputeCost Engine::PlanDecode(int64_t n_tokens) const {
  ComputeCost cost{.weights = LayerCost() + VocabularyCost()};
  AddAttention(insertion_.ModelSize(n_tokens), Phase::kDecode, 1, cost);
  return cost;
}

double Engine::DecodeBytes(int64_t n_tokens, double keys_read) const {
  const int64_t n = insertion_.ModelSize(n_tokens);
  const double pair = 2.0 * static_cast<double>(RowBytes(kv_type_, config().head_dim));
  double bytes = static_cast<double>(transformer_->DecodeWeightBytes()) + keys_read * pair;
  for (const LayerAttention& attention : transformer_->attention()) {
    const AttentionWork work = attention.policy->Work(n, Phase::kDecode, attention_model_.shape);
    // Vectors that several heads share are read once: never more than there are.
    const uint64_t vectors = attention.policy->StateBytes(n) - attention.policy->RewrittenBytes(n);
    bytes += std::min(4.0 * work.chosen_by, static_cast<double>(vectors));
  }
  return bytes;
}

double Engine::LayerCost() const {
  const ModelConfig& c = config();
  const int64_t layer =
      2 * c.embed_dim * (c.n_heads + c.n_kv_heads) * c.head_dim + 3 * c.embed_dim * c.ffn_dim;
  return 2.0 * static_cast<double>(c.n_layers * layer);
}

double Engine::VocabularyCost() const {
  return 2.0 * static_cast<double>(config().embed_dim * config().vocab_size);
}

void Engine::AddAttention(int64_t n, Phase phase, double times, ComputeCost& cost) const {
  for (const LayerAttention& attention : transformer_->attention()) {
    const AttentionWork work = attention.policy->Work(n, phase, attention_model_.shape);
    cost.attention += times * 4.0 * static_cast<double>(config().head_dim) * work.attended;
    cost.choosing += times * 2.0 * work.chosen_by;
  }
}

Result<std::vector<TokenId>> Engine::EncodePrompt(std::string_view text, bool chat,
                                                  const CancelToken* cancel) const try {
  if (!chat) return tokenizer_->Encode(text, {.add_bos = true, .cancel = cancel});
  if (!chat_template_) return Unsupported(chat_template_error_);
  return EncodeChatPrompt(*tokenizer_, *chat_template_, text, cancel);
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(OutOfMemory());
}

Result<bool> Engine::ExpectText(int64_t n_tokens) try {
  const int64_t n = insertion_.ModelSize(n_tokens);
  if (!FollowsTextLength() || attention_model_.text_tokens == n) return false;
  AttentionModel model = attention_model_;
  model.text_tokens = n;
  LH_ASSIGN(std::vector<LayerAttention> attention, MakeAttention(attention_spec_, model));
  transformer_->SetAttention(std::move(attention));
  attention_model_.text_tokens = n;
  return true;
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(OutOfMemory());
}

std::optional<BlockGrid> Engine::SelectionBlocks() const {
  for (const LayerAttention& layer : transformer_->attention()) {
    if (const std::optional<BlockGrid> blocks = layer.policy->Blocks()) return blocks;
  }
  return std::nullopt;
}

bool Engine::FollowsTextLength() const {
  return !attention_spec_.empty() &&
         std::ranges::any_of(transformer_->attention(),
                             [](const LayerAttention& layer) { return layer.follows_length; });
}

int64_t Engine::CallUnit() const {
  int64_t unit = 1;
  for (const LayerAttention& layer : transformer_->attention()) {
    // Frequencies that follow the text are those of the call.
    unit = layer.following.at ? 0 : std::lcm(unit, layer.policy->CallUnit());
    if (unit == 0) break;
  }
  return unit;
}

int64_t Engine::BlockBehind(int64_t begin) const {
  const int64_t unit = CallUnit();
  if (unit == 0) return std::numeric_limits<int64_t>::max();
  const int64_t block = transformer_->TokenBlock(insertion_.ModelSize(begin));
  // Steps count from where a call begins: behind a text that ends within one, whole steps.
  if (begin % unit != 0) return std::max<int64_t>(1, block / unit) * unit;
  // Whole pages, where the method does not ask for too odd ends.
  const int64_t whole = std::lcm(unit, kPageTokens) <= block ? std::lcm(unit, kPageTokens) : unit;
  const int64_t end = std::max((begin + block) / whole * whole, (begin / whole + 1) * whole);
  return end - begin;
}

Session Engine::NewSession() const { return Session(transformer_->NewSequence()); }

Session Engine::Fork(const Session& session) const {
  Session fork(session.state_.Fork());
  fork.tokens_ = session.tokens_;
  fork.fed_ = session.fed_;
  return fork;
}

void Session::MakeRoom() {
  // By doubling: a step in which the text does not outgrow them allocates nothing.
  if (tokens_.size() == tokens_.capacity()) tokens_.reserve(2 * tokens_.size() + 64);
  if (fed_.size() == fed_.capacity()) fed_.reserve(2 * fed_.size() + 64);
}

Status Engine::Guard(Session& session, const std::function<Status()>& work) {
  const int64_t before = session.size();
  std::vector<std::unique_ptr<PolicyState>> policies;
  Status status;
  try {
    for (const auto& policy : session.state_.policies) policies.push_back(policy->Fork());
    status = work();
  } catch (const std::bad_alloc&) {
    status = tl::unexpected<Error>(OutOfMemory());
  } catch (const PageError& error) {
    status = tl::unexpected<Error>(error.error());
  } catch (const std::exception& error) {  // a library's own, as oneDNN's
    status = MakeError(ErrorKind::kUnsupported, fmt::format("reading failed: {}", error.what()));
  }
  if (!status) {
    if (policies.size() == session.state_.policies.size()) session.state_.policies = std::move(policies);
    session.state_.kv.Truncate(std::min(insertion_.ModelSize(before), session.state_.kv.size()));
    session.tokens_.resize(static_cast<std::size_t>(before));
    session.fed_.resize(static_cast<std::size_t>(before));
    transformer_->ReserveFor(session.state_, session.state_.size());
  }
  return status;
}

Status Engine::CheckMemory(const Session& session, int64_t n_new, int64_t n_generated) const {
  LH_TRY(CheckDisk(session, n_new));
  const MemoryPlan now = PlanMemory(session.size());
  const MemoryPlan then = PlanMemory(session.size() + n_new);
  const KvPool& pool = *transformer_->kv_pool();
  // Of a text that was opened little may be in memory yet.
  const uint64_t near =
      pool.on_disk() ? pool.MemoryBytes() - std::min(pool.MemoryBytes(), pool.FreeBytes()) : now.kv;
  // A fork makes its near keys anew.
  const uint64_t near_keys = transformer_->NearBytes(insertion_.ModelSize(session.size()));
  const uint64_t state =
      now.state - std::min(now.state, near_keys - std::min(near_keys, session.state_.NearBytes()));
  const uint64_t there = std::min(near, now.kv) + now.tables + state;
  return CheckFits(then.working + then.text() - std::min(there, then.text()), then,
                   n_generated > 0 ? fmt::format("{} more tokens, of which -n allows {},", n_new, n_generated)
                                   : fmt::format("{} more tokens", n_new));
}

Status Engine::CheckOpening(int64_t n_tokens) const {
  const MemoryPlan plan = PlanMemory(n_tokens);
  return CheckFits(plan.total() - plan.weights, plan, fmt::format("the text's {} tokens", n_tokens));
}

Status Engine::CheckFits(uint64_t bytes, const MemoryPlan& plan, const std::string& what) const {
  // Pages that other sessions gave back are there to be used again. Weights that are mapped from the file
  // count as free, but every token or every block of a prompt reads them: what takes their place makes it
  // read them from disk. (Where not even they fit it does so anyway. Integer products have their own, and so
  // have weights that stay packed.)
  const uint64_t free = AvailableMemory() + transformer_->kv_pool()->FreeBytes();
  const uint64_t mapped = reads_file_ ? weight_bytes_ : 0;
  const uint64_t available = mapped < free ? free - mapped : free;
  bytes += transformer_->UnpackedBytes();
  if (bytes <= available) return {};
  const char* const limit = kv_ram_ == 0             ? ", or --kv-ram, which keeps the rest on disk"
                            : plan.text() <= kv_ram_ ? ", or a smaller --kv-ram"
                                                     : "";  // what is left stays in memory
  return MakeError(ErrorKind::kOutOfMemory,
                   fmt::format("{} take {} of memory, but only {} are free: use a shorter text{}{}", what,
                               FormatBytes(bytes), FormatBytes(available), limit,
                               kv_type_ == KvType::kQ8 ? "" : ", or --kv-type q8"));
}

Status Engine::CheckDisk(const Session& session, int64_t n_new) const {
  const KvPool& pool = *transformer_->kv_pool();
  const uint64_t then = PlanMemory(session.size() + n_new).disk;
  // Whoever writes a context file looks himself.
  if (then == 0 || pool.file() != overflow_) return {};
  // Pages of an opened text are on disk already, and stay there.
  const auto opened = static_cast<uint64_t>(session.state_.kv.n_adopted() * pool.geometry().PageStride());
  const uint64_t now = PlanMemory(session.size()).disk;
  const uint64_t total = then - std::min(opened, then);
  const uint64_t more = total - std::min(now - std::min(opened, now), total);
  if (kv_disk_max_ > 0 && total > kv_disk_max_) {
    return MakeError(ErrorKind::kIo,
                     fmt::format("the text's keys and values take {} of disk, but --kv-disk-max is {}",
                                 FormatBytes(total), FormatBytes(kv_disk_max_)));
  }
  LH_ASSIGN(const uint64_t free, FreeSpace(kv_disk_));
  if (more <= free) return {};
  return MakeError(
      ErrorKind::kIo,
      fmt::format("the text's keys and values take {} more of disk, but {} has {} free: name another "
                  "folder with --kv-disk, or use a shorter text{}",
                  FormatBytes(more), kv_disk_, FormatBytes(free),
                  kv_type_ == KvType::kQ8 ? "" : " or --kv-type q8"));
}

Result<std::vector<float>> Engine::Prefill(Session& session, std::span<const TokenId> tokens, Outputs outputs,
                                           const ForwardControl& control) try {
  if (tokens.empty()) return InvalidInput("the prompt is empty: there is nothing to read");
  LH_TRY(CheckMemory(session, static_cast<int64_t>(tokens.size())));
  std::vector<float> hidden;
  LH_TRY(Guard(session, [&]() -> Status {
    const int64_t before = session.size();
    const std::vector<TokenId> with_inserted =
        insertion_.none() ? std::vector<TokenId>() : insertion_.Into(tokens, before);
    const BatchItem item{.sequence = &session.state_,
                         .tokens = insertion_.none() ? tokens : std::span(with_inserted)};
    LH_TRY(transformer_->Forward(std::span(&item, 1), Phase::kPrefill, outputs, control, hidden));
    if (outputs == Outputs::kAll) {
      insertion_.KeepRowsOfText(hidden, before, static_cast<int64_t>(tokens.size()));
    }
    session.tokens_.insert(session.tokens_.end(), tokens.begin(), tokens.end());
    session.fed_.push_back(Session::Fed::kBeginsCall);
    session.fed_.resize(session.tokens_.size(), Session::Fed::kGoesOn);
    return {};
  }));
  return hidden;
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(OutOfMemory());
}

Result<std::vector<float>> Engine::Decode(std::span<Session* const> sessions,
                                          std::span<const TokenId> tokens) {
  std::vector<float> hidden;
  LH_TRY(Decode(sessions, tokens, hidden));
  return hidden;
}

Status Engine::Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                      std::vector<float>& hidden) {
  LH_CHECK(sessions.size() == tokens.size());
  for (std::size_t i = 1; i < sessions.size(); ++i) {
    LH_CHECK(std::find(sessions.begin(), sessions.begin() + static_cast<std::ptrdiff_t>(i), sessions[i]) ==
             sessions.begin() + static_cast<std::ptrdiff_t>(i));  // a batch holds a session once
  }
  Status status;
  try {
    batch_.clear();
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      sessions[i]->MakeRoom();
      batch_.push_back({.sequence = &sessions[i]->state_, .tokens = tokens.subspan(i, 1)});
    }
    status = transformer_->Forward(batch_, Phase::kDecode, Outputs::kLast, {}, hidden);
    if (status) status = DecodeInserted(sessions, hidden);
  } catch (const std::bad_alloc&) {
    status = tl::unexpected<Error>(OutOfMemory());
  } catch (const PageError& error) {
    status = tl::unexpected<Error>(error.error());
  } catch (const std::exception& error) {
    status = MakeError(ErrorKind::kUnsupported, fmt::format("decoding failed: {}", error.what()));
  }
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    if (status) {
      sessions[i]->tokens_.push_back(tokens[i]);
      sessions[i]->fed_.push_back(Session::Fed::kDecoded);
    } else {
      // Some layers may have taken the token: go back to where all of them stood.
      sessions[i]->state_.Truncate(insertion_.ModelSize(sessions[i]->size()));
    }
  }
  return status;
}

Status Engine::DecodeInserted(std::span<Session* const> sessions, std::vector<float>& hidden) {
  const auto due = [&](const Session* session) { return insertion_.Follows(session->size() + 1); };
  batch_.clear();
  for (Session* const session : sessions) {
    if (due(session)) {
      batch_.push_back({.sequence = &session->state_, .tokens = std::span(&insertion_.token(), 1)});
    }
  }
  if (batch_.empty()) return {};
  LH_TRY(transformer_->Forward(batch_, Phase::kDecode, Outputs::kLast, {}, inserted_hidden_));
  auto row = inserted_hidden_.begin();
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    if (!due(sessions[i])) continue;
    std::copy_n(row, config().embed_dim,
                hidden.begin() + static_cast<std::ptrdiff_t>(i) * config().embed_dim);
    row += config().embed_dim;
  }
  return {};
}

int64_t Engine::RewindPoint(const Session& session, int64_t n) const {
  // Policies that insert tokens go back to any: where one does not, it inserts none.
  if (n == session.size() || !insertion_.none()) return n;
  // A method that chooses for several of a prompt's tokens together chose for those before n with an eye to
  // those behind it.
  int64_t step_begin = n;
  if (const int64_t unit = CallUnit(); unit > 1) {
    int64_t begin = n;
    while (session.fed_[static_cast<std::size_t>(begin)] == Session::Fed::kGoesOn) --begin;
    step_begin = begin + (n - begin) / unit * unit;
  }
  return session.state_.RewindPoint(step_begin);
}

Status Engine::Truncate(Session& session, int64_t n) try {
  LH_CHECK(n >= 0 && n <= session.size());
  const int64_t point = RewindPoint(session, n);
  const auto cut = [&](Session& to) {
    to.state_.Truncate(insertion_.ModelSize(point));
    to.tokens_.resize(static_cast<std::size_t>(point));
    to.fed_.resize(static_cast<std::size_t>(point));
    transformer_->ReserveFor(to.state_, to.state_.size());
  };
  if (point == n) {
    cut(session);
    return {};
  }
  Session shorter = Fork(session);  // feeding may fail: the session stays as it was until it is done
  cut(shorter);
  const std::span<const TokenId> tokens(session.tokens_);
  for (std::size_t i = static_cast<std::size_t>(point); i < static_cast<std::size_t>(n);) {
    if (session.fed_[i] == Session::Fed::kDecoded) {
      Session* const self = &shorter;
      LH_TRY(Decode(std::span(&self, 1), tokens.subspan(i, 1)));
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < static_cast<std::size_t>(n) && session.fed_[end] == Session::Fed::kGoesOn) ++end;
    LH_TRY(Prefill(shorter, tokens.subspan(i, end - i), Outputs::kNone, {}));
    i = end;
  }
  session = std::move(shorter);
  return {};
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(OutOfMemory());
}

std::vector<PolicyCounter> Engine::Counters(const Session& session) const {
  std::vector<PolicyCounter> sums;
  for (const auto& policy : session.state_.policies) {
    for (const PolicyCounter& counter : policy->Counters()) {
      const auto sum = std::ranges::find(sums, counter.name, &PolicyCounter::name);
      if (sum == sums.end()) {
        sums.push_back(counter);
      } else {
        sum->count += counter.count;
      }
    }
  }
  return sums;
}

std::vector<float> Engine::Logits(std::span<const float> hidden) {
  const std::size_t n_rows = hidden.size() / static_cast<std::size_t>(config().embed_dim);
  std::vector<float> logits(n_rows * static_cast<std::size_t>(config().vocab_size));
  transformer_->Logits(hidden, logits);
  return logits;
}

Result<Generated> Engine::Generate(Session& session, std::span<const float> hidden,
                                   const GenerateOptions& options) try {
  LH_ASSIGN(Sampler sampler, Sampler::Create(options.sampling));
  Generated result;
  StreamingDecoder decoder(*tokenizer_);
  std::vector<float> state(hidden.begin(), hidden.end());
  const std::size_t n_known = tokenizer_->vocabulary().tokens.size();  // the rest of the rows is padding
  std::vector<float> logits(static_cast<std::size_t>(config().vocab_size));
  Session* const self = &session;
  for (int64_t i = 0; i < options.max_tokens; ++i) {
    if (Cancelled(options.cancel)) {
      result.reason = StopReason::kCancelled;
      break;
    }
    transformer_->Logits(state, logits);
    if (std::ranges::none_of(logits, [](float logit) { return std::isfinite(logit); })) {
      return MakeError(
          ErrorKind::kUnsupported,
          "the model gives no number for any token: its file may be damaged, or made for another "
          "--compute");
    }
    if (!insertion_.none()) {
      logits[static_cast<std::size_t>(insertion_.token())] = std::numeric_limits<float>::lowest();
    }
    const TokenId token = sampler.Sample(std::span(logits).first(n_known), session.tokens());
    if (tokenizer_->IsEndOfGeneration(token)) {
      result.reason = StopReason::kEndOfGeneration;
      break;
    }
    result.tokens.push_back(token);
    const std::string text = decoder.Push(token);
    result.text += text;
    if (options.on_token && !options.on_token(token, text)) {
      result.reason = StopReason::kCaller;
      break;
    }
    if (i + 1 == options.max_tokens) break;
    LH_TRY(Decode(std::span(&self, 1), std::span(&token, 1), state));
  }
  const std::string rest = decoder.Finish();
  result.text += rest;
  const bool listens = options.on_token && result.reason != StopReason::kCaller;
  if (!rest.empty() && listens && !result.tokens.empty()) options.on_token(result.tokens.back(), rest);
  return result;
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(OutOfMemory());
}

}  // namespace longheads
