#include "program/view_command.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/out_file.h"
#include "cli/output.h"
#include "formats/output_file.h"
#include "report/selection_figure.h"
#include "report/selection_page.h"

namespace longheads {
namespace {

struct ViewOptions {
  std::string trace;
  std::string page;
  std::string figure;
  std::string needle;
  std::optional<int64_t> token;
};

Result<int> View(const ViewOptions& options) {
  if (options.page.empty() && options.figure.empty()) {
    return InvalidInput("nothing is asked for: give -o FILE for a page, --svg FILE for a figure, or both");
  }
  if (options.token && options.figure.empty())
    return InvalidInput("--token is of the figure alone: say where that goes with --svg FILE");
  LH_TRY(CheckNotInput("-o", options.page, options.trace, "the trace"));
  LH_TRY(CheckNotInput("--svg", options.figure, options.trace, "the trace"));
  LH_ASSIGN(const SelectionView view, ReadSelectionView(options.trace, {.needle = options.needle}));
  const int64_t n_frames = static_cast<int64_t>(view.frames.size());
  if (options.token && (*options.token < 1 || *options.token > n_frames)) {
    return InvalidInput(
        fmt::format("--token is {}, but the trace has tokens 1 to {}", *options.token, n_frames));
  }
  if (view.n_left_out > 0) {
    Note("note: {} of {} records are left out: the page would be too large\n", view.n_left_out,
         view.n_left_out + n_frames + static_cast<int64_t>(view.prompt_frames.size()));
  }
  if (!options.page.empty()) LH_TRY(WriteFile(options.page, SelectionPage(view)));
  if (!options.figure.empty()) LH_TRY(WriteFile(options.figure, SelectionFigure(view, options.token)));
  return 0;
}

}  // namespace

void AddViewCommand(CLI::App& program, Command& command) {
  CLI::App* const app =
      program.add_subcommand("view", "Shows what each head chose to see: a page or a figure of a trace");
  const auto options = std::make_shared<ViewOptions>();
  app->add_option("trace", options->trace, "what --trace FILE of 'longheads run' or 'ask' wrote")
      ->type_name("FILE")
      ->required();
  app->add_option("-o,--output", options->page, "the page: one HTML file that loads nothing")
      ->type_name("FILE");
  app->add_option("--svg", options->figure,
                  "a figure of layers and heads against the text, as Figure 5 of LongHeads")
      ->type_name("FILE");
  app->add_option("--needle", options->needle, "outline the chunks in which this text stands")
      ->type_name("TEXT");
  app->add_option("--token", options->token,
                  "the figure of this token of the answer, from 1; default: all together")
      ->type_name("N");
  app->footer(
      "Example:\n"
      "  longheads run -f book.txt -q \"Who stole the ring?\" --trace ring.trace\n"
      "  longheads view ring.trace -o ring.html --needle \"Gollum\" --svg ring.svg");
  app->callback([options, &command] { command = [options] { return View(*options); }; });
}

}  // namespace longheads
