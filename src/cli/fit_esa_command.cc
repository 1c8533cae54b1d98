#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "engine/engine.h"
#include "engine/esa_compression.h"

namespace longheads {
namespace {

struct FitEsaCommandOptions {
  ModelOptions model;
  std::string file;
  std::string recall_file;
  int64_t n_local = 0;
  int64_t dim = 0;
};

Result<int> Fit(const FitEsaCommandOptions& options) {
  LH_ASSIGN(const std::string path, FindModel(options.model.model));
  EsaFitOptions fit{.engine = {.model_path = path,
                               .compute = options.model.compute,
                               .kv_type = options.model.kv_type,
                               .backend = options.model.backend,
                               .threads = options.model.threads},
                    .text = {},
                    .n_local = options.n_local,
                    .dim = options.dim,
                    .cancel = &InterruptToken()};
  if (!options.file.empty()) {
    LH_ASSIGN(fit.text, ReadFile(options.file));
    if (fit.text.empty()) return InvalidInput(fmt::format("{}: the file is empty", options.file));
  }
  std::string recall_text;
  if (!options.recall_file.empty()) {
    LH_ASSIGN(recall_text, ReadFile(options.recall_file));
  }
  std::optional<Progress> progress;
  fit.progress = [&progress](double share, int64_t n_tokens) {
    if (!progress) progress.emplace("reading", n_tokens);
    (*progress)(share);
  };
  LH_ASSIGN(const EsaFitReport report, FitEsaCompression(fit));
  if (progress) progress->Finish();
  progress.reset();
  Print("fitted to {} tokens of {}, for n_local={}, dim up to {}\nsaved as {}\n\n", report.n_tokens,
        options.file.empty() ? "the built-in sample" : options.file, report.n_local, report.dim, report.path);
  Print("  dim   squared error of the scores\n");
  for (const auto& error : report.errors) Print("{:5}   {:.4f}%\n", error.dim, 100 * error.share);
  if (options.recall_file.empty()) return 0;

  LH_ASSIGN(const EsaRecallReport recall, MeasureEsaRecall({.engine = fit.engine,
                                                            .text = std::move(recall_text),
                                                            .n_local = options.n_local,
                                                            .cancel = fit.cancel,
                                                            .progress = fit.progress}));
  if (progress) progress->Finish();
  Print("\n{} tokens of {}: of what exact scores choose, compressed ones find\n", recall.n_tokens,
        options.recall_file);
  for (const auto& found : recall.found) Print("{:5}   {:.1f}%\n", found.dim, 100 * found.share);
  Print("(by chance {:.1f}%)\n", 100 * recall.by_chance);
  return 0;
}

}  // namespace

void AddFitEsaCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand(
      "fit-esa", "Fits the compression that --attn esa scores tokens by to a model, once");
  const auto options = std::make_shared<FitEsaCommandOptions>();
  const std::string group = "Fit";
  app->add_option("-f,--file", options->file,
                  "text that the model reads (default: a built-in sample; tens of thousands of tokens of the "
                  "kind you will ask about are better)")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--n-local", options->n_local, "n_local of --attn esa that it is for (default: esa's own)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->group(group);
  app->add_option("--dim", options->dim,
                  "the most that --attn esa,dim= may ask for (default: all there are, at most 256)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->group(group);
  app->add_option("--recall", options->recall_file,
                  "then read this text by exact scores, and say how much of each choice is found in fewer "
                  "dimensions")
      ->type_name("FILE")
      ->group(group);
  AddModelFileOption(*app, options->model);
  AddComputeOptions(*app, options->model);
  app->footer("Example:\n  longheads fit-esa -f book.txt\n  longheads run --attn esa -f book.txt -q \"...\"");
  app->callback([options, &command] { command = [options] { return Fit(*options); }; });
}

}  // namespace longheads
