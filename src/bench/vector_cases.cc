// Element-wise work of a layer and comparisons of scores, on rows as wide as the default model's widest:
// bytes that are read and written, beside what one thread reads from memory. One row again and again comes
// from the first cache, which gives more than memory; 96 MB of rows do not.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "bench/kernel_case.h"
#include "kernels/vector_ops.h"

namespace longheads {
namespace {

constexpr int64_t kWidth = 1536;
constexpr int kHeadDim = 64;
constexpr int64_t kRows = 16384;  // that one timing works on: as many as there are, or one as often

struct Rows {
  int64_t n_rows;
  Buffer<float> a, b, out;  // b: 1 + exp(-a), under which silu_mul leaves a as it is
  Buffer<BFloat16> halves;
  Buffer<int8_t> bytes;
  Buffer<int32_t> indices = Buffer<int32_t>(kWidth + kIndexRoom);

  explicit Rows(int64_t n)
      : n_rows(n), a(n * kWidth), b(n * kWidth), out(n * kWidth), halves(n * kWidth), bytes(n * kWidth) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < a.size(); ++i) {
      a[i] = i < kWidth ? normal(random) : a[i % kWidth];
      b[i] = 1 + std::exp(-a[i]);
    }
    FastestVectorKernels().to_bf16(a.data(), a.size(), halves.data());
    for (int64_t row = 0; row < n; ++row)
      FastestVectorKernels().to_q8(a.data() + row * kWidth, kWidth, bytes.data() + row * kWidth);
  }
};

struct Operation {
  const char* name;
  double bytes;  // that are read and written for each number
  // Of the row that begins at `at`. Adds what it gives to `given`, where that is not null.
  void (*run)(const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given);
};

template <typename T>
void Give(const T* numbers, int64_t n, std::vector<float>* given) {
  if (given == nullptr) return;
  std::transform(numbers, numbers + n, std::back_inserter(*given), [](T number) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      return std::bit_cast<float>(uint32_t{number.bits} << 16);
    } else {
      return static_cast<float>(number);
    }
  });
}

// Rotates as many heads as a row holds.
const RotationTable& Rotations() {
  static const RotationTable table = [] {
    std::vector<double> theta;
    for (int m = 0; m < kHeadDim / 2; ++m) theta.push_back(std::pow(10000.0, -2.0 * m / kHeadDim));
    return RotationTable(theta, kHeadDim, PairLayout::kInterleaved, 4096);
  }();
  return table;
}

constexpr float kBound = 2.5f;  // one score of 160 is at least as large

constexpr Operation kOperations[] = {
    {"rms_norm", 8,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.rms_norm(rows.a.data() + at, rows.b.data(), 1e-5f, kWidth, rows.out.data() + at);
       Give(rows.out.data() + at, kWidth, given);
     }},
    {"add", 12,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.add(rows.a.data() + at, rows.b.data() + at, kWidth);
       Give(rows.a.data() + at, kWidth, given);
     }},
    {"silu_mul", 12,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.silu_mul(rows.a.data() + at, rows.b.data() + at, kWidth);
       Give(rows.a.data() + at, kWidth, given);
     }},
    {"rotate", 8,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       for (int64_t head = 0; head < kWidth; head += kHeadDim)
         by.rotate(rows.a.data() + at + head, 1000 + head, Rotations(), rows.out.data() + at + head);
       Give(rows.out.data() + at, kWidth, given);
     }},
    {"to_bf16", 6,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.to_bf16(rows.a.data() + at, kWidth, rows.halves.data() + at);
       Give(rows.halves.data() + at, kWidth, given);
     }},
    {"from_bf16", 6,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.from_bf16(rows.halves.data() + at, kWidth, rows.a.data() + at);
       Give(rows.a.data() + at, kWidth, given);
     }},
    {"to_q8", 5,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.to_q8(rows.a.data() + at, kWidth, rows.bytes.data() + at);
       Give(rows.bytes.data() + at, kWidth, given);
     }},
    {"from_q8", 5,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.from_q8(rows.bytes.data() + at, 0.03125f, kWidth, rows.a.data() + at);
       Give(rows.a.data() + at, kWidth, given);
     }},
    {"from_q8_each", 9,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       by.from_q8_each(rows.bytes.data() + at, rows.b.data() + at, kWidth, rows.out.data() + at);
       Give(rows.out.data() + at, kWidth, given);
     }},
    {"range", 4,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       const ScoreRange range = by.range(rows.a.data() + at, kWidth);
       benchmark::DoNotOptimize(range);
       Give(&range.least, 1, given);
       Give(&range.largest, 1, given);
     }},
    {"count_at_least", 4,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       const int64_t count = by.count_at_least(rows.a.data() + at, kWidth, kBound);
       benchmark::DoNotOptimize(count);
       Give(&count, 1, given);
     }},
    {"indices_at_least", 4,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       Give(rows.indices.data(), by.indices_at_least(rows.a.data() + at, kWidth, kBound, rows.indices.data()),
            given);
     }},
    {"cut", 4,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       const ScoreCut cut = by.cut(rows.a.data() + at, kWidth, 16, 20);
       benchmark::DoNotOptimize(cut);
       Give(&cut.n, 1, given);
     }},
    {"fold_largest", 4,
     [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       constexpr int64_t kPieces = 4 * kFoldWidth;
       by.fold_largest(rows.a.data() + at, kWidth, kPieces, rows.out.data() + at);
       Give(rows.out.data() + at, kPieces, given);
     }},
    {"exp_sum", 4, [](const VectorKernels& by, Rows& rows, int64_t at, std::vector<float>* given) {
       const double mean = by.exp_sum(rows.a.data() + at, kWidth, 5) / kWidth;
       benchmark::DoNotOptimize(mean);
       Give(&mean, 1, given);
     }}};

void Elementwise(benchmark::State& state, const KernelCases& cases, const VectorKernels* kernels,
                 const Operation& operation) {
  std::vector<float> out, expected;
  {
    Rows one(1), of_reference(1);
    operation.run(*kernels, one, 0, &out);
    operation.run(*VectorImplementations().back().table, of_reference, 0, &expected);
  }
  // Far above the roundings of each (the tests derive those: kernels/vector_ops_test.cc).
  if (out.size() != expected.size()) return state.SkipWithError("gives another number of numbers than ref");
  if (!KernelCases::IsRight(state, out, expected, 1e-4)) return;
  Rows rows(state.range(0));
  cases.Time(state, KernelUnit::kBytes, operation.bytes * static_cast<double>(kRows * kWidth),
             cases.ReadLimit(1), [&] {
               for (int64_t i = 0; i < kRows; ++i)
                 operation.run(*kernels, rows, i % rows.n_rows * kWidth, nullptr);
             });
}

}  // namespace

void AddVectorCases(KernelCases& cases) {
  for (const auto& implementation : VectorImplementations()) {
    if (!implementation.declined.empty() || implementation.name == "ref") continue;
    for (const Operation& operation : kOperations) {
      cases.Add(fmt::format("{}/{}", operation.name, implementation.name),
                {.names = {"rows"}, .values = {{1}, {kRows}}},
                [&cases, kernels = implementation.table, &operation](benchmark::State& state) {
                  Elementwise(state, cases, kernels, operation);
                });
    }
  }
}

}  // namespace longheads
