#include "bench/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/kernel_case.h"
#include "kernels/int8.h"

namespace longheads {
namespace {

TEST(Kernels, AreTimedAfterTheyGaveWhatTheReferenceGives) {
  const Result<std::vector<KernelRow>> rows =
      RunKernels({.filter = "(vocabulary|gemm|scores)/", .repeats = 3, .threads = 2}, nullptr);
  ASSERT_TRUE(rows) << rows.error().message;
  std::size_t n_int8 = 0;
  for (const auto& implementation : Int8Implementations())
    n_int8 += implementation.declined.empty() && implementation.name != "ref" ? 1 : 0;
  std::size_t n_vocabulary = 0, n_gemm = 0;
  for (const KernelRow& row : *rows) {
    EXPECT_EQ(row.failed, "") << row.name;
    EXPECT_EQ(row.rate.n, 3) << row.name;
    // Nothing that runs this reads less than 10 MB or multiplies less than 10 million times a second.
    EXPECT_GT(row.rate.median, 1e7) << row.name;
    EXPECT_GE(row.rate.median, row.rate.low) << row.name;
    EXPECT_LE(row.rate.median, row.rate.high) << row.name;
    EXPECT_DOUBLE_EQ(row.share(), row.rate.median / row.limit) << row.name;
    n_vocabulary += row.name.starts_with("vocabulary/") ? 1 : 0;
    n_gemm += row.name.starts_with("gemm/") ? 1 : 0;
    EXPECT_EQ(row.unit, row.name.starts_with("vocabulary/") ? "B/s" : "OP/s");
  }
  EXPECT_EQ(n_vocabulary, 2 * n_int8);  // by one thread and by two
  EXPECT_GE(n_gemm, 1U);
}

TEST(Kernels, AreToldAsTablesAndForPrograms) {
  const std::vector<KernelRow> rows = {
      {.name = "int8/avx2/q8_0/rows:1",
       .unit = "B/s",
       .rate = {.median = 8e9, .low = 7e9, .high = 9e9, .n = 5, .mean = 8e9},
       .limit = 1e10,
       .failed = {}},
      {.name = "attend/avx2/rows:48", .unit = {}, .failed = "gives 2 where ref gives 1"}};
  const std::string table = KernelTable(rows);
  EXPECT_NE(table.find("8 (7-9)  GB/s       80%"), std::string::npos) << table;
  EXPECT_NE(table.find("gives 2 where ref gives 1"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(KernelJson(rows))["kernels"];
  EXPECT_EQ(json[0]["share"], 0.8);
  EXPECT_EQ(json[1]["failed"], "gives 2 where ref gives 1");
  EXPECT_FALSE(json[1].contains("median"));
  const std::string csv = KernelCsv(rows);
  EXPECT_NE(csv.find("\nint8/avx2/q8_0/rows:1,B/s,8e+09,7e+09,9e+09,5,1e+10,0.8000,,"), std::string::npos)
      << csv;
}

TEST(Kernels, ThatGiveSomethingElseAreNotTimed) {
  const std::vector<float> expected = {1, 2};
  bool right = true, other = false, none = false;
  KernelCases cases(
      1, 1, nullptr, [](int) { return 1.0; }, [](ComputeType) { return 1.0; });
  benchmark::ClearRegisteredBenchmarks();
  cases.Add("case", {.names = {"n"}, .values = {{0}}}, [&](benchmark::State& state) {
    right = KernelCases::IsRight(state, expected, expected, 0);
    const std::vector<float> off = {1, 2.5f}, nothing = {1, std::nanf("")};
    other = KernelCases::IsRight(state, off, expected, 0.25);
    none = KernelCases::IsRight(state, nothing, expected, 1e30);
  });
  EXPECT_EQ(benchmark::RunSpecifiedBenchmarks("case"), 1U);
  benchmark::ClearRegisteredBenchmarks();
  EXPECT_TRUE(right);
  EXPECT_FALSE(other);
  EXPECT_FALSE(none);
}

TEST(Kernels, AreRefusedWhereNoneIsMeant) {
  const Result<std::vector<KernelRow>> no_expression = RunKernels({.filter = "(int8"}, nullptr);
  ASSERT_FALSE(no_expression);
  EXPECT_EQ(no_expression.error().kind, ErrorKind::kInvalidInput);
  const Result<std::vector<KernelRow>> none = RunKernels({.filter = "no such kernel"}, nullptr);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(none.error().message.find("no such kernel"), std::string::npos);
  EXPECT_FALSE(RunKernels({.repeats = 0}, nullptr));
}

TEST(Kernels, StopWhereTheyAreInterrupted) {
  CancelToken cancel;
  cancel.Cancel();
  const Result<std::vector<KernelRow>> rows = RunKernels({.filter = "gemm/"}, &cancel);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().kind, ErrorKind::kCancelled);
}

}  // namespace
}  // namespace longheads
