#include "bench/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <utility>

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
  RowReporter(std::vector<KernelRow>& rows, std::size_t n_cases, const std::function<void(double)>& on_row)
      : rows_(rows), n_cases_(n_cases), on_row_(on_row) {}

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
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
      if (on_row_) on_row_(static_cast<double>(rows_.size()) / static_cast<double>(n_cases_));
    }
  }

 private:
  std::vector<KernelRow>& rows_;
  std::size_t n_cases_;
  const std::function<void(double)>& on_row_;
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

KernelCases::KernelCases(const KernelOptions& options, std::regex filter, LimitsOf limits,
                         const CancelToken* cancel)
    : options_(options), filter_(std::move(filter)), limits_(std::move(limits)), cancel_(cancel) {}

// Google Benchmark's own filter also sees how often a case is repeated.
void KernelCases::Add(const std::string& name, const Shape& shape, Body body) {
  const auto run = [this, body = std::move(body)](benchmark::State& state) {
    if (Cancelled(cancel_)) return state.SkipWithError("interrupted");
    body(state);
  };
  for (const std::vector<int64_t>& values : shape.values) {
    std::string sizes;
    for (std::size_t i = 0; i < values.size(); ++i) sizes += fmt::format("/{}:{}", shape.names[i], values[i]);
    if (!std::regex_search(name + sizes, filter_)) continue;
    ++n_cases_;
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->ArgNames(shape.names)
        ->Args(values)
        ->Iterations(options_.repeats)
        ->UseRealTime();
  }
}

std::vector<KernelRow> KernelCases::Run(const std::function<void(double)>& on_row) const {
  std::vector<KernelRow> rows;
  RowReporter reporter(rows, n_cases_, on_row);
  benchmark::RunSpecifiedBenchmarks(&reporter, ".");
  return rows;
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

namespace {

Result<std::unique_ptr<KernelCases>> CasesOf(const KernelOptions& options, KernelCases::LimitsOf limits,
                                             const CancelToken* cancel) {
  std::regex filter;
  try {
    filter = std::regex(options.filter, std::regex_constants::extended);
  } catch (const std::regex_error& error) {
    return InvalidInput(
        fmt::format("--filter '{}' is not a regular expression: {}", options.filter, error.what()));
  }
  if (options.repeats < 1) return InvalidInput("--repeats must be at least 1");
  auto cases = std::make_unique<KernelCases>(options, std::move(filter), std::move(limits), cancel);
  AddQuantisedCases(*cases);
  AddInt8Cases(*cases);
  AddGemmCases(*cases);
  AddAttentionCases(*cases);
  AddVectorCases(*cases);
  if (cases->size() == 0) {
    return InvalidInput(
        fmt::format("no kernel that runs here has '{}' in its name: --filter . shows all", options.filter));
  }
  return cases;
}

}  // namespace

Status CheckKernels(const KernelOptions& options) {
  return CasesOf(options, {}, nullptr).map([](const auto&) {});
}

Result<std::vector<KernelRow>> RunKernels(const KernelOptions& options, const CancelToken* cancel,
                                          const std::function<void(double)>& on_row) {
  Limits limits(cancel);
  LH_ASSIGN(const std::unique_ptr<KernelCases> cases,
            CasesOf(options,
                    {.read = [&](int n_threads) { return limits.Read(n_threads); },
                     .products = [&](ComputeType type) { return limits.Product(type); }},
                    cancel));
  std::vector<KernelRow> rows = cases->Run(on_row);
  if (Cancelled(cancel)) return MakeError(ErrorKind::kCancelled, "interrupted");
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
