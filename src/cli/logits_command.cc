#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/out_file.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "formats/npy.h"

namespace longheads {
namespace {

struct LogitsOptions {
  ModelOptions model;
  std::string tokens;
  std::string out;
  int64_t prefill = -1;
};

Result<std::vector<TokenId>> ReadTokens(const std::string& path, int64_t vocab_size) {
  LH_ASSIGN(const NpyArray array, ReadNpy(path));
  if (array.shape.size() != 1 || array.shape[0] < 1) {
    return InvalidInput(fmt::format("{}: token ids must be one row of at least one number", path));
  }
  std::vector<TokenId> ids;
  Status status;
  const auto add = [&](const auto* values) {
    if (values == nullptr) return;
    for (const auto id : *values) {
      const int64_t wide = static_cast<int64_t>(id);
      if (status && (wide < 0 || wide >= vocab_size)) {
        status = InvalidInput(
            fmt::format("{}: {} is not a token id: the vocabulary has 0 .. {}", path, wide, vocab_size - 1));
      }
      ids.push_back(static_cast<TokenId>(wide));
    }
  };
  if (array.As<float>() != nullptr)
    return InvalidInput(fmt::format("{}: token ids must be integers, not float32", path));
  add(array.As<int32_t>());
  add(array.As<int64_t>());
  add(array.As<uint32_t>());
  LH_TRY(status);
  return ids;
}

Result<int> Logits(const LogitsOptions& options) {
  LH_ASSIGN(const std::string model, FindModel(options.model.model));
  LH_TRY(CheckNotInput("--out", options.out, model, "the model file"));
  LH_TRY(CheckNotInput("--out", options.out, options.tokens, "the file of --tokens"));
  const CancelToken& interrupt = InterruptToken();  // from here on Ctrl-C leaves no half-written file
  LH_ASSIGN(const std::unique_ptr<Engine> engine, LoadEngine(options.model));
  const int64_t vocab = engine->config().vocab_size;
  const int64_t embed = engine->config().embed_dim;
  LH_ASSIGN(const std::vector<TokenId> tokens, ReadTokens(options.tokens, vocab));
  const int64_t n = static_cast<int64_t>(tokens.size());
  if (options.prefill > n) {
    return InvalidInput(fmt::format("--prefill {} is more than the {} tokens there are", options.prefill, n));
  }
  const int64_t n_prefill = options.prefill < 0 ? n : options.prefill;
  LH_TRY(engine->ExpectText(n));
  const int64_t shape[] = {n, vocab};
  LH_ASSIGN(NpyWriter<float> writer, NpyWriter<float>::Create(options.out, shape));
  Session session = engine->NewSession();

  Progress progress("logits", n);
  const double whole = static_cast<double>(n);
  if (n_prefill > 0) {
    // One call, as any prompt is read; half of the time, say, is the vocabulary's.
    const double half = static_cast<double>(n_prefill) / whole / 2;
    LH_ASSIGN(
        const std::vector<float> hidden,
        engine->Prefill(session, std::span(tokens).first(static_cast<std::size_t>(n_prefill)), Outputs::kAll,
                        {.cancel = &interrupt, .progress = [&](double share) { progress(half * share); }}));
    // A row of logits is 200 KB for the default model: never all of them at once.
    constexpr int64_t kRows = 64;
    for (int64_t row = 0; row < n_prefill; row += kRows) {
      if (interrupt.cancelled()) return MakeError(ErrorKind::kCancelled, "stopped");
      const int64_t n_rows = std::min(kRows, n_prefill - row);
      LH_TRY(writer.Append(engine->Logits(std::span(hidden).subspan(
          static_cast<std::size_t>(row * embed), static_cast<std::size_t>(n_rows * embed)))));
      progress(half + half * static_cast<double>(row + n_rows) / static_cast<double>(n_prefill));
    }
  }
  Session* const self = &session;
  for (int64_t i = n_prefill; i < n; ++i) {
    if (interrupt.cancelled()) return MakeError(ErrorKind::kCancelled, "stopped");
    LH_ASSIGN(const std::vector<float> hidden,
              engine->Decode(std::span(&self, 1), std::span(tokens).subspan(static_cast<std::size_t>(i), 1)));
    LH_TRY(writer.Append(engine->Logits(hidden)));
    progress(static_cast<double>(i + 1) / whole);
  }
  progress.Finish();
  LH_TRY(writer.Close());
  Note("wrote {}: float32 [{}, {}], {} tokens in prefill, {} decoded ({})\n", options.out, n, vocab,
       n_prefill, n - n_prefill, engine->DescribeKernels());
  return 0;
}

}  // namespace

void AddLogitsCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand(
      "logits", "Writes the logits at every position of given tokens: the door to check the engine");
  const auto options = std::make_shared<LogitsOptions>();
  app->add_option("--tokens", options->tokens, "token ids: a .npy file, one row of int32, int64 or uint32")
      ->required()
      ->type_name("IDS.npy")
      ->group("Input and output");
  app->add_option("--out", options->out,
                  "float32 [tokens, vocabulary] as a .npy file; an older one stays until it is whole")
      ->required()
      ->type_name("LOGITS.npy")
      ->group("Input and output");
  app->add_option("--prefill", options->prefill,
                  "tokens in prefill; the rest is decoded one by one (default: all)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->group("Input and output");
  AddModelOptions(*app, options->model);
  app->footer("Example:\n  longheads logits --tokens ids.npy --out logits.npy --prefill 100 --compute f32");
  app->callback([options, &command] { command = [options] { return Logits(*options); }; });
}

}  // namespace longheads
