#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "engine/block_parts.h"
#include "model/gguf_vocabulary.h"

namespace longheads {
namespace {

struct InfoOptions {
  ModelOptions model;
  std::string context;
};

void Line(std::string_view name, const std::string& value) { Print("{:<16}{}\n", name, OnOneLine(value)); }

std::string TypeMix(const GgufFile& file) {
  std::map<std::string_view, std::pair<int, uint64_t>> mix;
  for (const std::string& name : file.tensor_names()) {
    const TensorView& tensor = *file.FindTensor(name);
    auto& [count, bytes] = mix[Info(tensor.type).name];
    ++count;
    bytes += BytesOf(tensor.type, tensor.elements()).value_or(0);
  }
  std::string text;
  for (const auto& [type, sum] : mix) {
    text += fmt::format("{}{} x {} ({})", text.empty() ? "" : ", ", sum.first, type, FormatBytes(sum.second));
  }
  return text;
}

// A file that holds a tokenizer and no model.
Result<int> InfoOfVocabulary(const GgufFile& file) {
  LH_ASSIGN(const Vocabulary vocabulary, ReadVocabulary(file));
  Line("file", fmt::format("{} ({}, GGUF v{}): a vocabulary alone", file.name(),
                           FormatBytes(file.file_bytes()), file.version()));
  Line("tokenizer", fmt::format("{}, {} tokens",
                                vocabulary.model == Vocabulary::Model::kBpe
                                    ? "BPE, pre-tokenizer " + vocabulary.pre_tokenizer
                                    : std::string("SPM"),
                                vocabulary.tokens.size()));
  return 0;
}

Result<int> ShowInfo(const InfoOptions& options) {
  int64_t n_tokens = 0;
  if (!options.context.empty()) {
    const Result<int64_t> count = ParseCount(options.context);
    if (!count) return InvalidInput(fmt::format("-c: {}", count.error().message));
    n_tokens = *count;
    if (n_tokens < 1 || n_tokens > kMostTokens) {
      return InvalidInput(fmt::format("-c is {}, but must be 1 to {}", n_tokens, kMostTokens));
    }
  }
  LH_ASSIGN(const std::string path, FindModel(options.model.model));
  {
    LH_ASSIGN(const GgufFile file, GgufFile::Open(path));
    if (file.tensor_names().empty()) {
      if (n_tokens > 0)
        return InvalidInput(fmt::format("{} holds a vocabulary alone: -c needs a model", file.name()));
      return InfoOfVocabulary(file);
    }
  }
  LH_ASSIGN(const std::unique_ptr<Engine> engine, LoadEngine(options.model));
  if (n_tokens > 0) LH_TRY(engine->ExpectText(n_tokens));
  const ModelConfig& config = engine->config();
  const Vocabulary& vocabulary = engine->tokenizer().vocabulary();
  const GgufFile& file = engine->file();
  Line("file", fmt::format("{} ({}, GGUF v{})", file.name(), FormatBytes(file.file_bytes()), file.version()));
  Line("family", config.architecture + (config.name.empty() ? "" : " (" + config.name + ")"));
  Line("window",
       fmt::format("{} tokens ({})", config.trained_window,
                   config.rope.scaling == RopeScaling::kNone ? "trained" : "under its RoPE scaling"));
  Line("layers",
       fmt::format("{} of width {}, feed-forward {}", config.n_layers, config.embed_dim, config.ffn_dim));
  Line("heads", fmt::format("{} query, {} key/value, of {} dimensions", config.n_heads, config.n_kv_heads,
                            config.head_dim));
  Line("rope", DescribeRope(config.rope));
  Line("tokenizer", fmt::format("{}, {} tokens",
                                vocabulary.model == Vocabulary::Model::kBpe
                                    ? "BPE, pre-tokenizer " + vocabulary.pre_tokenizer
                                    : std::string("SPM"),
                                vocabulary.tokens.size()));
  Line("template", engine->chat_template() != nullptr ? std::string(engine->chat_template()->name())
                                                      : engine->chat_template_error());
  Line("weights", TypeMix(file));
  Line("attention", engine->ExplainAttention(n_tokens));
  Line("kernels", fmt::format("{}, {} threads", engine->DescribeKernels(), engine->threads()));
  if (n_tokens == 0) n_tokens = config.trained_window;
  const MemoryPlan plan = engine->PlanMemory(n_tokens);
  Line("memory",
       fmt::format(
           "for {} tokens: {} = weights {} + working memory {} + the text's {}; beside it the program's own, "
           "at most {}",
           n_tokens, FormatBytes(plan.total()), FormatBytes(plan.weights), FormatBytes(plan.working),
           FormatBytes(plan.text()), FormatBytes(kProgramBytes)));
  Line("text", fmt::format("keys and values {} + tables of pages {} + method's state {} + larger blocks {}{}",
                           FormatBytes(plan.kv), FormatBytes(plan.tables), FormatBytes(plan.state),
                           FormatBytes(plan.large_blocks),
                           !engine->KeepsToRam(n_tokens)
                               ? ": more than --kv-ram, since all but keys and values stays in memory"
                               : ""));
  if (plan.disk > 0) {
    Line("disk", fmt::format("{} of keys and values, under {}", FormatBytes(plan.disk), engine->kv_folder()));
  }
  if (options.model.kv_blocks == 0 && BlockPartsMatter(*engine, n_tokens)) {
    engine->FitBlocksTo({.ram = engine->block_fit().ram, .parts = BlockFit::kLeastParts});
    const uint64_t blocks = engine->PlanMemory(n_tokens).large_blocks;
    Line("blocks",
         fmt::format(
             "where the disk is slow and memory has room, a text is read in larger ones: they take up to "
             "{} then, unless --kv-blocks is {}",
             FormatBytes(blocks), BlockFit::kMostParts));
  }
  const auto work = [](const ComputeCost& cost, std::string_view of) {
    return fmt::format("{:.3f} GFLOP{} = weights {:.3f} + attention {:.3f} + choosing keys {:.3f}",
                       cost.total() / 1e9, of, cost.weights / 1e9, cost.attention / 1e9, cost.choosing / 1e9);
  };
  Line("prefill", fmt::format("of {} tokens: {}", n_tokens, work(engine->PlanPrefill(n_tokens), "")));
  Line("decode",
       fmt::format("after {} tokens: {}", n_tokens, work(engine->PlanDecode(n_tokens), " a token")));
  for (const std::string& warning : engine->Warnings(n_tokens)) Line("warning", warning);
  return 0;
}

}  // namespace

void AddInfoCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand(
      "info", "Says what a model is, and what memory and work a text of N tokens takes");
  const auto options = std::make_shared<InfoOptions>();
  CLI::Option* const file =
      app->add_option("MODEL", options->model.model, "GGUF file; without it, the default model");
  file->type_name("FILE");
  app->add_option("-c,--context", options->context,
                  "length of the text, for the plan of memory and work (default: the trained window)")
      ->type_name("TOKENS");
  AddModelOptions(*app, options->model);
  file->excludes(app->get_option("--model"));
  app->footer(
      "Examples:\n  longheads info model.gguf\n  longheads info model.gguf -c 128k --attn longheads "
      "--kv-type q8 --kv-ram 1g");
  app->callback([options, &command] { command = [options] { return ShowInfo(*options); }; });
}

}  // namespace longheads
