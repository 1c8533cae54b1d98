#include "program/report_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "base/cores.h"
#include "cli/output.h"
#include "eval/provenance.h"
#include "formats/output_file.h"
#include "report/results_page.h"

namespace longheads {
namespace {

struct ReportOptions {
  std::string directory;
  std::string page;
  std::string figures;
  std::string title;
};

Result<int> MakeReportFiles(const ReportOptions& options) {
  if (std::filesystem::path(options.page).extension() == ".jsonl") {
    return InvalidInput(
        fmt::format("-o {} has the name of results themselves: name an .html file", options.page));
  }
  LH_ASSIGN(const Results results, ReadResults(options.directory));
  const Report report = MakeReport(
      results,
      {.title = options.title.empty() ? fmt::format("Results in {}", options.directory) : options.title,
       .program = ProgramAndCommit(),
       .machine = ProcessorName()});
  for (const std::string& note : results.notes) Note("note: {}\n", note);
  LH_TRY(WriteFile(options.page, report.page));
  if (options.figures.empty()) return 0;
  const std::filesystem::path folder = options.figures;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return InvalidInput(fmt::format("{}: cannot make the directory: {}", options.figures, error.message()));
  for (const auto& [name, contents] : report.files) LH_TRY(WriteFile(folder / name, contents));
  return 0;
}

}  // namespace

void AddReportCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand(
      "report",
      "Makes a page of what 'longheads eval' found: tables, curves and maps beside the papers' numbers");
  const auto options = std::make_shared<ReportOptions>();
  app->add_option("directory", options->directory,
                  "where 'longheads eval ... --out DIR' keeps its results; all *.jsonl in it and below")
      ->type_name("DIR")
      ->required();
  app->add_option("-o,--output", options->page, "the page: one HTML file that loads nothing")
      ->type_name("FILE")
      ->required();
  app->add_option("--figures", options->figures,
                  "also every figure as SVG and every table as CSV, into this folder")
      ->type_name("FOLDER");
  app->add_option("--title", options->title, "what the page is called")->type_name("TEXT");
  app->footer("Example:\n  longheads report results -o report.html --figures figures");
  app->callback([options, &command] { command = [options] { return MakeReportFiles(*options); }; });
}

}  // namespace longheads
