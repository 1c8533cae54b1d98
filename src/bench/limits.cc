#include "bench/limits.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/cores.h"
#include "base/csv.h"
#include "base/memory.h"
#include "kernels/vector_ops.h"
#include "kv/disk_speed.h"

namespace longheads {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Error Stopped() { return {ErrorKind::kCancelled, "interrupted"}; }

Result<Measured> MeasureProducts(ComputeType type, ThreadPool& pool, int repeats, const CancelToken* cancel) {
  std::vector<std::unique_ptr<PeakGemm>> products;  // one for each thread
  for (int i = 0; i < pool.n_threads(); ++i) products.push_back(MakePeakGemm(type));
  if (products[0] == nullptr) return Measured{};
  std::vector<double> rates;
  int64_t rounds = 1;
  for (int repeat = -2; repeat < repeats;
       ++repeat) {  // one to warm up, one to find how many take long enough
    if (Cancelled(cancel)) return tl::unexpected<Error>(Stopped());
    const auto start = Clock::now();
    // A task for each thread; which thread takes which is as good as any.
    pool.Run(pool.n_threads(), [&](int64_t task, int) {
      for (int64_t round = 0; round < rounds; ++round) products[static_cast<std::size_t>(task)]->Run();
    });
    const double seconds = Since(start);
    const double operations = static_cast<double>(rounds * pool.n_threads()) * products[0]->operations();
    if (repeat == -1)
      rounds = std::max<int64_t>(1, static_cast<int64_t>(0.2 * static_cast<double>(rounds) / seconds));
    if (repeat >= 0) rates.push_back(operations / seconds);
  }
  return Summarise(rates);
}

nlohmann::ordered_json Json(const Measured& measured) {
  if (measured.n == 0) return nullptr;
  return {
      {"median", measured.median}, {"low", measured.low}, {"high", measured.high}, {"repeats", measured.n}};
}

}  // namespace

Result<Measured> MeasureRead(ThreadPool& pool, int repeats, const CancelToken* cancel) {
  constexpr int64_t kNumbers = int64_t{256} << 18;  // 256 MiB: more than the caches hold
  constexpr int64_t kTasks = 256, kTask = kNumbers / kTasks;
  // As the weights lie, and by a kernel that does next to nothing with each.
  const AlignedMemory memory = AllocateAligned(kNumbers * sizeof(float), alignof(float));
  const auto* const numbers = new (memory.get()) float[kNumbers]();
  const VectorKernels& kernels = FastestVectorKernels();
  std::atomic<float> sink{0};  // so that nothing is left out
  std::vector<double> rates;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first wakes the threads
    constexpr int kPasses = 4;
    if (Cancelled(cancel)) return tl::unexpected<Error>(Stopped());
    const auto start = Clock::now();
    for (int pass = 0; pass < kPasses; ++pass) {
      pool.Run(kTasks,
               [&](int64_t task, int) { sink = kernels.range(numbers + task * kTask, kTask).largest; });
    }
    if (repeat >= 0) rates.push_back(kPasses * 4.0 * kNumbers / Since(start));
  }
  return Summarise(rates);
}

Result<Measured> MeasureDisk(const std::string& folder, int repeats, const CancelToken* cancel) {
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  LH_ASSIGN(std::vector<double> rates, MeasureDiskSpeed(folder, kBytes, repeats, cancel));
  return Summarise(std::move(rates));
}

const Measured& MachineLimits::products(ComputeType type) const {
  switch (OfPrompts(type)) {
    case ComputeType::kBF16:
      return bf16.n > 0 ? bf16 : f32;  // without the instructions they are products of float32
    case ComputeType::kInt8:
      return int8;
    case ComputeType::kF32:
    case ComputeType::kBF16Int8:
      break;
  }
  return f32;
}

Result<MachineLimits> MeasureLimits(ThreadPool& pool, int repeats, const CancelToken* cancel) {
  MachineLimits limits{.threads = pool.n_threads()};
  LH_ASSIGN(limits.read, MeasureRead(pool, repeats, cancel));
  LH_ASSIGN(limits.f32, MeasureProducts(ComputeType::kF32, pool, repeats, cancel));
  LH_ASSIGN(limits.bf16, MeasureProducts(ComputeType::kBF16, pool, repeats, cancel));
  LH_ASSIGN(limits.int8, MeasureProducts(ComputeType::kInt8, pool, repeats, cancel));
  return limits;
}

std::string LimitsTable(const MachineLimits& limits) {
  const auto products = [](const char* name, const Measured& measured) {
    return fmt::format("{:<22}{}\n", name,
                       measured.n == 0 ? "- (no instructions for it)" : Format(measured, 1e9) + " GOP/s");
  };
  return fmt::format("{}, {} threads; median (least-most of {} repeats)\n", ProcessorName(), limits.threads,
                     limits.read.n) +
         fmt::format("{:<22}{} GB/s\n", "read from memory", Format(limits.read, 1e9)) +
         (limits.disk.n == 0 ? ""
                             : fmt::format("{:<22}{} GB/s\n", "read from disk", Format(limits.disk, 1e9))) +
         products("products in f32", limits.f32) + products("products in bf16", limits.bf16) +
         products("products in int8", limits.int8);
}

std::string LimitsCsv(const MachineLimits& limits) {
  std::string csv = "limit,unit,median,low,high,repeats,threads,processor\n";
  const auto add = [&](const char* name, const char* unit, const Measured& measured) {
    if (measured.n == 0) return;
    csv += fmt::format("{},{},{:.6g},{:.6g},{:.6g},{},{},{}\n", name, unit, measured.median, measured.low,
                       measured.high, measured.n, limits.threads, CsvField(ProcessorName()));
  };
  add("read", "B/s", limits.read);
  add("disk", "B/s", limits.disk);
  add("f32", "OP/s", limits.f32);
  add("bf16", "OP/s", limits.bf16);
  add("int8", "OP/s", limits.int8);
  return csv;
}

std::string LimitsJson(const MachineLimits& limits) {
  const nlohmann::ordered_json json = {{"processor", ProcessorName()}, {"threads", limits.threads},
                                       {"read", Json(limits.read)},    {"f32", Json(limits.f32)},
                                       {"bf16", Json(limits.bf16)},    {"int8", Json(limits.int8)},
                                       {"disk", Json(limits.disk)}};
  return json.dump();
}

}  // namespace longheads
