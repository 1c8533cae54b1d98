#include "program/bench_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/cores.h"
#include "bench/kernels.h"
#include "bench/sweep.h"
#include "cli/answer_options.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "formats/output_file.h"
#include "program/eval_options.h"
#include "report/machine_charts.h"
#include "report/sweep_charts.h"

namespace longheads {
namespace {

constexpr const char* kGroup = "Measurement";

void AddRepeats(CLI::App& app, int& repeats) {
  app.add_option("--repeats", repeats,
                 "repeats of each measurement; figures are the median, the least and the most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(kGroup);
}

struct LimitsOptions {
  int threads = 0;
  int repeats = 5;
  std::string disk = {};  // a folder
  bool json = false;
  std::string out_dir = {};
};

Result<MachineLimits> Limits(const LimitsOptions& options) {
  Note("measuring this machine's limits\n");
  ThreadPool pool(options.threads > 0 ? options.threads : PhysicalCores());
  LH_ASSIGN(MachineLimits limits, MeasureLimits(pool, options.repeats, &InterruptToken()));
  if (!options.disk.empty()) {
    LH_ASSIGN(limits.disk, MeasureDisk(options.disk, options.repeats, &InterruptToken()));
  }
  return limits;
}

void AddThreads(CLI::App& app, int& threads) {
  app.add_option("-t,--threads", threads, "threads; 0: the physical cores this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(kGroup);
}

// Makes the folder, and finds before the work that its files cannot be written; what they hold stays.
Status CheckFolder(const std::string& dir, const char* file) {
  if (dir.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return MakeError(ErrorKind::kIo, fmt::format("cannot make the folder {}: {}", dir, error.message()));
  }
  return OutputFile::Create((std::filesystem::path(dir) / file).string()).map([](const OutputFile&) {});
}

// What was measured, in a folder that CheckFolder has seen.
Status WriteFiles(const std::string& dir, const std::string& name, const std::string& csv,
                  const std::string& json, const std::string& svg) {
  if (dir.empty()) return {};
  const std::string path = (std::filesystem::path(dir) / name).string();
  LH_TRY(WriteFile(path + ".csv", csv));
  LH_TRY(WriteFile(path + ".json", json + "\n"));
  return WriteFile(path + ".svg", svg);
}

void AddOutput(CLI::App& app, bool& json, std::string& out_dir) {
  app.add_flag("--json", json, "as JSON")->group("Output");
  const std::string name = app.get_name();
  app.add_option("--out", out_dir, fmt::format("write DIR/{0}.csv, DIR/{0}.json and DIR/{0}.svg", name))
      ->type_name("DIR")
      ->group("Output");
}

Result<int> RunLimits(const LimitsOptions& options) {
  LH_TRY(CheckFolder(options.out_dir, "limits.csv"));
  LH_ASSIGN(const MachineLimits limits, Limits(options));
  LH_TRY(WriteFiles(options.out_dir, "limits", LimitsCsv(limits), LimitsJson(limits), LimitsChart(limits)));
  WriteOutput(options.json ? LimitsJson(limits) + "\n" : LimitsTable(limits));
  return 0;
}

void AddLimits(CLI::App& bench, Command& command) {
  CLI::App* const app = bench.add_subcommand(
      "limits", "Measures what this machine can do: bytes read, and products of each type");
  const auto options = std::make_shared<LimitsOptions>();
  AddThreads(*app, options->threads);
  AddRepeats(*app, options->repeats);
  app->add_option("--disk", options->disk, "also how fast pages of 64 KiB come from the disk of this folder")
      ->type_name("DIR")
      ->group(kGroup);
  AddOutput(*app, options->json, options->out_dir);
  app->footer(
      R"(Reading is looking for the least and the largest of 256 MiB of numbers; products are of square matrices, one for
each thread: oneDNN's, but in bfloat16 with AMX our own. Other work on the machine lowers them: look at the least and
the most.

Example:
  longheads bench limits --repeats 9)");
  app->callback([options, &command] { command = [options] { return RunLimits(*options); }; });
}

struct KernelsCommandOptions {
  KernelOptions kernels;
  bool json = false;
  std::string out_dir;
};

Result<int> RunKernelsCommand(KernelsCommandOptions options) {
  if (options.kernels.threads == 0) options.kernels.threads = PhysicalCores();
  LH_TRY(CheckKernels(options.kernels));
  LH_TRY(CheckFolder(options.out_dir, "kernels.csv"));
  Note("timing kernels, each after it gave what the reference gives\n");
  Progress progress("kernels");
  const Result<std::vector<KernelRow>> timed =
      RunKernels(options.kernels, &InterruptToken(), std::ref(progress));
  progress.Finish();
  LH_ASSIGN(const std::vector<KernelRow> rows, timed);
  LH_TRY(WriteFiles(options.out_dir, "kernels", KernelCsv(rows), KernelJson(rows), KernelChart(rows)));
  WriteOutput(options.json ? KernelJson(rows) + "\n"
                           : fmt::format("{}; median (least-most of {} repeats)\n{}", ProcessorName(),
                                         options.kernels.repeats, KernelTable(rows)));
  const auto failed = std::ranges::count_if(rows, [](const KernelRow& row) { return !row.failed.empty(); });
  if (failed == 0) return 0;
  return Unsupported(fmt::format(
      "{} of {} kernels give something else than the reference, and must not be used: --backend ref does "
      "without them",
      failed, rows.size()));
}

void AddKernels(CLI::App& bench, Command& command) {
  CLI::App* const app = bench.add_subcommand(
      "kernels",
      "Times single kernels, each held to the reference first, as shares of this machine's limits");
  const auto options = std::make_shared<KernelsCommandOptions>();
  options->kernels.threads = 0;
  AddThreads(*app, options->kernels.threads);
  AddRepeats(*app, options->kernels.repeats);
  app->add_option("--filter", options->kernels.filter, "those whose name this is found in")
      ->type_name("REGEX")
      ->capture_default_str()
      ->group(kGroup);
  AddOutput(*app, options->json, options->out_dir);
  app->footer(
      R"(Names are operation, implementation, for some the type of weights, and sizes; every implementation that this processor runs is timed.
'...-token' and 'gemv' read weights that no cache holds, as a generated token does, and 'vocabulary' those of the
default model, which large caches may hold; they are told as shares of what so many threads read from memory. 'int8-prompt', 'gemm' and
'attend' multiply many rows on one thread, and 'attend_few', 'column_mass_few' and 'scores' few; they are told as shares of large
products on one thread (oneDNN's; in bfloat16 with AMX our own), of the type that they multiply, as 'column_mass' and
'scores_of_columns' are. 'attend_few' of 2048 pages and 'scores_of_columns' of 262144 chunks read them from memory, and are told as shares of what one thread reads; so are
'merge' and the others on rows of numbers ('rms_norm', 'add', 'range' and their like).

Example:
  longheads bench kernels --filter 'vocabulary|attend' --out results)");
  app->callback([options, &command] { command = [options] { return RunKernelsCommand(*options); }; });
}

struct SweepCommandOptions {
  EvalOptions eval;
  SweepOptions sweep;
  std::string text_file;
  std::string out_dir;
};

Status WriteResults(const std::string& dir, const std::vector<SweepRow>& rows, const MachineLimits& limits,
                    const SweepSetup& setup) {
  if (dir.empty()) return {};
  const std::filesystem::path folder(dir);
  LH_TRY(WriteFile((folder / "sweep.csv").string(), SweepCsv(rows, limits, setup)));
  LH_TRY(WriteFile((folder / "sweep.json").string(), SweepJson(rows, limits, setup) + "\n"));
  std::set<std::string> drawn;
  for (const SweepChart& chart : SweepCharts(rows, setup)) {
    LH_TRY(WriteFile((folder / chart.name).string(), chart.drawing));
    drawn.insert(chart.name);
  }
  // How many there are, and of what, changes: what is left of an earlier sweep would tell of something else.
  const std::regex a_drawing("sweep-(prefill|decode|memory)(-[0-9]+)?\\.svg");
  std::error_code error;
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (std::regex_match(name, a_drawing) && !drawn.contains(name)) old.push_back(entry.path());
  }
  for (const std::filesystem::path& path : old) std::filesystem::remove(path, error);
  return {};
}

// The same model with all keys and values in memory.
ModelOptions InMemory(ModelOptions options) {
  const ModelOptions usual;
  options.kv_ram = usual.kv_ram;
  options.kv_disk = usual.kv_disk;
  options.kv_disk_max = usual.kv_disk_max;
  options.kv_blocks = usual.kv_blocks;
  return options;
}

Result<int> RunSweepCommand(SweepCommandOptions options) {
  options.sweep.attention = ListSpecs(options.eval);
  LH_ASSIGN(options.sweep.lengths, ListLengths(options.eval));
  if (!options.text_file.empty()) {
    TextInput input;
    input.file = options.text_file;
    LH_ASSIGN(options.sweep.text, ReadText(input));
  }
  LH_ASSIGN(const std::string path, FindModel(options.eval.model.model));
  const SweepSetup setup = {.model = std::filesystem::path(path).filename().string(),
                            .rope = options.eval.model.rope.Text(),
                            .text = std::filesystem::path(options.text_file).filename().string(),
                            .n_decode = options.sweep.n_decode,
                            .seed = options.sweep.seed};
  CaseProgress progress;
  MachineLimits limits;
  std::vector<SweepRow> rows;
  Status written;
  const int64_t longest = options.sweep.lengths.empty()
                              ? 0
                              : *std::max_element(options.sweep.lengths.begin(), options.sweep.lengths.end());
  const SweepHooks hooks = {
      .load = Loader(options.eval.model),
      .load_in_memory = Loader(InMemory(options.eval.model)),
      .on_method = [longest](const Engine& engine,
                             const std::string& attention) { AnnounceMethod(engine, attention, longest); },
      .on_work =
          [&progress](const std::string& attention, int64_t length) {
            return progress.Start(fmt::format("{}, {} tokens", attention, length), length);
          },
      .on_row =
          [&](const SweepRow&) {
            progress.Finish();
            written = WriteResults(options.out_dir, rows, limits, setup);
          },
      .cancel = &InterruptToken()};
  const ModelOptions& model = options.eval.model;
  LH_ASSIGN(const EngineOptions load, EngineOptionsOf(model));
  if (options.sweep.beside_memory && load.kv_ram == 0) {
    return InvalidInput("--beside-memory has no effect without --kv-ram SIZE: all is in memory");
  }
  LH_TRY(CheckSweep(options.sweep, hooks));
  LH_TRY(CheckFolder(options.out_dir, "sweep.csv"));
  LH_ASSIGN(limits, Limits({.threads = model.threads, .disk = load.kv_ram > 0 ? load.kv_disk : ""}));
  WriteOutput(LimitsTable(limits));

  const Status status = RunSweep(options.sweep, hooks, rows);
  progress.Finish();
  if (!rows.empty()) {
    WriteOutput(fmt::format("\n{}, {} repeats, {} tokens generated after each prompt\n{}", setup.model,
                            options.sweep.repeats, options.sweep.n_decode, SweepTable(rows, limits)));
  }
  LH_TRY(status);
  LH_TRY(written);
  return 0;
}

void AddSweep(CLI::App& bench, Command& command) {
  CLI::App* const app =
      bench.add_subcommand("sweep", "Speed of reading and of generating against length, for each method");
  const auto options = std::make_shared<SweepCommandOptions>();
  AddEvalOptions(*app, options->eval, "lengths of the prompts in tokens; k is 1024", "512,4k");
  app->add_option("-n,--predict", options->sweep.n_decode, "tokens generated after each prompt")
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
  AddRepeats(*app, options->sweep.repeats);
  app->add_option("--seed", options->sweep.seed, "of the prompts' tokens")
      ->check(CheckSeed)
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--text", options->text_file,
                  "prompts are pieces of this text, and the tokens generated are replaced by the text's own")
      ->type_name("FILE")
      ->group(kGroup);
  app->add_flag("--beside-memory", options->sweep.beside_memory,
                "with --kv-ram: the same also with everything in memory, eight tokens of each in turn, so "
                "that what the machine gives meanwhile changes both alike")
      ->group(kGroup);
  app->add_option("--out", options->out_dir,
                  "write DIR/sweep.csv, DIR/sweep.json and drawings of speed and memory against length "
                  "(DIR/sweep-*.svg), anew after each row")
      ->type_name("DIR")
      ->group("Output");
  app->footer(
      R"(Prompts are random tokens (or pieces of --text), others for each repeat; one of at most 2048 tokens that is not
timed goes before. A prompt's time goes to its first token, the time of a generated token includes the vocabulary.
'of limit' is the time that this machine needs at the limits measured
just before, as a share of the time taken: for a prompt all operations, those with weights at the rate of the
compute type and attention at that of what it computes in; for a token the bytes it must read: weights as in the file, the
keys and values that are attended to (those that heads share once), and what the method chooses by. 'memory'
is the most the process had. With --kv-ram a line below says what came from disk; the limit is then the slower
of the two, memory and disk. With --beside-memory too another says how much longer a token takes than with everything in
memory, by the means; 'memory' is then of both together.

Example:
  longheads bench sweep --attn 'full;longheads' --lengths 512,4k,16k --compute int8 --out results)");
  app->callback([options, &command] { command = [options] { return RunSweepCommand(*options); }; });
}

}  // namespace

void AddBenchCommand(CLI::App& program, Command& command) {
  CLI::App* const bench =
      program.add_subcommand("bench", "Measures speed: of this machine, and of the engine as shares of it");
  bench->require_subcommand(1);
  bench->footer(
      "'longheads bench WHAT --help' says more.\n\nExample:\n  longheads bench sweep --attn "
      "'full;longheads'");
  AddLimits(*bench, command);
  AddKernels(*bench, command);
  AddSweep(*bench, command);
}

}  // namespace longheads
