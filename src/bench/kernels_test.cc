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
      RunKernels({.filter = "(vocabulary|gemm|scores.*/rows:3|column_mass_few|merge|"
                            "(rms_norm|silu_mul|rotate|q8|each|range|sum|least)/[^/]*/rows:1$)",
                  .repeats = 3,
                  .threads = 2},
                 nullptr);
  ASSERT_TRUE(rows) << rows.error().message;
  std::size_t n_int8 = 0;
  for (const auto& implementation : Int8Implementations())
    n_int8 += implementation.declined.empty() && implementation.name != "ref" ? 1 : 0;
  std::size_t n_vocabulary = 0, n_gemm = 0, n_rows = 0;
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
    n_rows += row.name.ends_with("/rows:1") ? 1 : 0;
    const bool products = row.name.starts_with("gemm/") || row.name.starts_with("scores") ||
                          row.name.starts_with("column_mass");
    EXPECT_EQ(row.unit, products ? "OP/s" : "B/s");
  }
  EXPECT_EQ(n_vocabulary, 2 * n_int8);  // by one thread and by two
  EXPECT_GE(n_gemm, 1U);
  EXPECT_EQ(n_rows % 10, 0U);
  EXPECT_GE(n_rows, 10U);
}

TEST(Kernels, AreToldAsTablesAndForPrograms) {
  const std::vector<KernelRow> rows = {
      {.name = "int8-token/avx2/Q8_0/threads:1",
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
  EXPECT_NE(csv.find("\nint8-token/avx2/Q8_0/threads:1,B/s,8e+09,7e+09,9e+09,5,1e+10,0.8000,,"),
            std::string::npos)
      << csv;
}

KernelCases OneMachine(const char* filter, const CancelToken* cancel) {
  return KernelCases({.repeats = 4}, std::regex(filter),
                     {.read = [](int) { return 1.0; }, .products = [](ComputeType) { return 1.0; }}, cancel);
}

TEST(Kernels, ThatGiveSomethingElseAreNotTimed) {
  KernelCases cases = OneMachine("", nullptr);
  int n_runs = 0;
  const std::vector<float> expected = {1, 2};
  const std::vector<std::vector<float>> given = {{1, 2.25f}, {1, 2.5f}, {1, std::nanf("")}};
  cases.Add("case", {.names = {"given"}, .values = {{0}, {1}, {2}}}, [&](benchmark::State& state) {
    if (!KernelCases::IsRight(state, given[static_cast<std::size_t>(state.range(0))], expected, 0.25)) return;
    cases.Time(state, KernelUnit::kOperations, 1, 1, [&n_runs] { ++n_runs; });
  });
  const std::vector<KernelRow> rows = cases.Run();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(n_runs, 4);
  EXPECT_EQ(rows[0].failed, "");
  EXPECT_EQ(rows[0].rate.n, 4);
  EXPECT_EQ(rows[1].name, "case/given:1");
  EXPECT_EQ(rows[1].failed, "gives 2.5 where ref gives 2");
  EXPECT_NE(rows[2].failed.find("nan"), std::string::npos);
}

TEST(Kernels, AreChosenByTheNamesThatAreShown) {
  for (const auto& [filter, n] :
       {std::pair("", 3), {"n:2$", 1}, {"^case/n:(1|3)", 2}, {"iterations|real", 0}}) {
    KernelCases cases = OneMachine(filter, nullptr);
    cases.Add("case", {.names = {"n"}, .values = {{1}, {2}, {3}}}, [](benchmark::State&) {});
    EXPECT_EQ(cases.size(), static_cast<std::size_t>(n)) << filter;
  }
}

TEST(Kernels, StopInTheMiddleOfOne) {
  CancelToken cancel;
  KernelCases cases = OneMachine("", &cancel);
  int n_runs = 0;
  cases.Add("case", {.names = {"n"}, .values = {{1}, {2}}}, [&](benchmark::State& state) {
    cases.Time(state, KernelUnit::kBytes, 1, 1, [&] {
      ++n_runs;
      cancel.Cancel();
    });
  });
  const std::vector<KernelRow> rows = cases.Run();
  EXPECT_EQ(n_runs, 1);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].failed, "interrupted");
  EXPECT_EQ(rows[1].failed, "interrupted");
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
