#include "bench/kernels.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>

#include "base/cores.h"
#include "base/csv.h"
#include "bench/kernel_case.h"
#include "bench/limits.h"

namespace longheads {
namespace {

constexpr const char* kUnits[] = {"B/s", "OP/s"};  // by KernelUnit

// Google Benchmark hands a case's figures on as named numbers.
class RowReporter final : public benchmark::BenchmarkReporter {
 public:
  explicit RowReporter(std::vector<KernelRow>& rows) : rows_(rows) { SetErrorStream(&unheard_); }

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      KernelRow row{.name = run.run_name.function_name + "/" + run.run_name.args, .unit = {}, .failed = {}};
      if (run.error_occurred) {
        row.failed = run.error_message;
      } else {
        const auto number = [&run](const char* name) { return run.counters.at(name).value; };
        row.unit = kUnits[static_cast<int>(number("unit"))];
        row.rate = {.median = number("median"),
                    .low = number("low"),
                    .high = number("high"),
                    .n = static_cast<int>(run.iterations),
                    .mean = number("mean")};
        row.limit = number("limit");
      }
      rows_.push_back(std::move(row));
    }
  }

 private:
  std::vector<KernelRow>& rows_;
  std::ostringstream unheard_;  // that no name fits is said by whoever asked
};

// The machine's limits, by the number of threads; measured when they are first asked for.
class Limits {
 public:
  explicit Limits(const CancelToken* cancel) : cancel_(cancel) {}

  double Read(int n_threads) {
    double& read = read_[n_threads];
    if (read == 0) {
      ThreadPool pool(n_threads);
      const Result<Measured> measured = MeasureRead(pool, kRepeats, cancel_);
      if (measured) read = measured->median;
    }
    return read;
  }
  double Product(ComputeType type) {
    if (!one_thread_) {
      ThreadPool pool(1);
      const Result<MachineLimits> measured = MeasureLimits(pool, kRepeats, cancel_);
      if (!measured) return 0;
      one_thread_ = *measured;
    }
    return one_thread_->products(type).median;
  }

 private:
  static constexpr int kRepeats = 5;
  const CancelToken* cancel_;
  std::map<int, double> read_;
  std::optional<MachineLimits> one_thread_;
};

nlohmann::ordered_json Json(const KernelRow& row) {
  if (!row.failed.empty()) return {{"name", row.name}, {"failed", row.failed}};
  return {{"name", row.name},      {"unit", row.unit}, {"median", row.rate.median}, {"low", row.rate.low},
          {"high", row.rate.high}, {"n", row.rate.n},  {"limit", row.limit},        {"share", row.share()}};
}

}  // namespace

void KernelCases::Add(const std::string& name, const Shape& shape, Body body) {
  auto* const registered =
      benchmark::RegisterBenchmark(name.c_str(), [this, body = std::move(body)](benchmark::State& state) {
        if (Cancelled(cancel_)) {
          state.SkipWithError("interrupted");
          return;
        }
        body(state);
      });
  registered->ArgNames(shape.names)->Iterations(repeats_)->UseRealTime();
  for (const std::vector<int64_t>& values : shape.values) registered->Args(values);
}

bool KernelCases::IsRight(benchmark::State& state, std::span<const float> out,
                          std::span<const float> expected, double bound) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::abs(static_cast<double>(out[i]) - expected[i]) <= bound) continue;
    state.SkipWithError(fmt::format("gives {} where ref gives {}", out[i], expected[i]).c_str());
    return false;
  }
  return true;
}

void KernelCases::Time(benchmark::State& state, KernelUnit unit, double amount, double limit,
                       const std::function<void()>& once) const {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    once();
    benchmark::ClobberMemory();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (Cancelled(cancel_)) {
      state.SkipWithError("interrupted");
      return;
    }
  }
  const Measured rate = PerSecond(amount, Summarise(std::move(seconds)));
  state.counters["unit"] = static_cast<double>(unit);
  state.counters["median"] = rate.median;
  state.counters["low"] = rate.low;
  state.counters["high"] = rate.high;
  state.counters["mean"] = rate.mean;
  state.counters["limit"] = limit;
}

Result<std::vector<KernelRow>> RunKernels(const KernelOptions& options, const CancelToken* cancel) {
  try {
    const std::regex valid(options.filter, std::regex_constants::extended);  // as Google Benchmark takes it
  } catch (const std::regex_error& error) {
    return InvalidInput(
        fmt::format("--filter '{}' is not a regular expression: {}", options.filter, error.what()));
  }
  if (options.repeats < 1) return InvalidInput("--repeats must be at least 1");
  Limits limits(cancel);
  KernelCases cases(
      options.threads, options.repeats, cancel, [&](int n_threads) { return limits.Read(n_threads); },
      [&](ComputeType type) { return limits.Product(type); });
  benchmark::ClearRegisteredBenchmarks();
  AddQuantisedCases(cases);
  AddInt8Cases(cases);
  AddGemmCases(cases);
  AddAttentionCases(cases);
  std::vector<KernelRow> rows;
  RowReporter reporter(rows);
  const std::size_t n = benchmark::RunSpecifiedBenchmarks(&reporter, options.filter);
  benchmark::ClearRegisteredBenchmarks();
  if (Cancelled(cancel)) return MakeError(ErrorKind::kCancelled, "interrupted");
  if (n == 0) {
    return InvalidInput(
        fmt::format("no kernel that runs here has '{}' in its name: --filter . shows all", options.filter));
  }
  return rows;
}

std::string KernelTable(const std::vector<KernelRow>& rows) {
  std::size_t width = 6;
  for (const KernelRow& row : rows) width = std::max(width, row.name.size());
  std::string table = fmt::format("{:<{}}  {:>28}  {:>8}\n", "kernel", width, "rate", "of limit");
  for (const KernelRow& row : rows) {
    if (!row.failed.empty()) {
      table += fmt::format("{:<{}}  {}\n", row.name, width, row.failed);
      continue;
    }
    table += fmt::format("{:<{}}  {:>22} {:>5}  {:>7.0f}%\n", row.name, width, Format(row.rate, 1e9),
                         "G" + row.unit, 100 * row.share());
  }
  return table;
}

std::string KernelCsv(const std::vector<KernelRow>& rows) {
  std::string csv = "kernel,unit,median,low,high,repeats,limit,share,failed,processor\n";
  for (const KernelRow& row : rows) {
    csv += fmt::format("{},{},{:.6g},{:.6g},{:.6g},{},{:.6g},{:.4f},{},{}\n", CsvField(row.name), row.unit,
                       row.rate.median, row.rate.low, row.rate.high, row.rate.n, row.limit, row.share(),
                       CsvField(row.failed), CsvField(ProcessorName()));
  }
  return csv;
}

std::string KernelJson(const std::vector<KernelRow>& rows) {
  nlohmann::ordered_json json = {{"processor", ProcessorName()}, {"kernels", nlohmann::json::array()}};
  for (const KernelRow& row : rows) json["kernels"].push_back(Json(row));
  return json.dump(1);
}

}  // namespace longheads
