#include "bench/limits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace longheads {
namespace {

TEST(MachineLimits, AreMeasuredForWhatTheProcessorHas) {
  ThreadPool pool(2);
  const Result<MachineLimits> limits = MeasureLimits(pool, 1, nullptr);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->threads, 2);
  // No machine that runs this reads less than 100 MB or multiplies less than 100 million times a second.
  EXPECT_GT(limits->read.median, 1e8);
  EXPECT_GT(limits->f32.median, 1e8);
  EXPECT_GT(limits->int8.median, 1e8);
  bool native = false;
  for (const auto& gemm : GemmImplementations()) native |= gemm.declined.empty() && gemm.table->native_bf16;
  EXPECT_EQ(limits->bf16.n > 0, native);
  EXPECT_EQ(&limits->products(ComputeType::kBF16), native ? &limits->bf16 : &limits->f32);
  const nlohmann::json json = nlohmann::json::parse(LimitsJson(*limits));
  EXPECT_EQ(json["read"]["median"], limits->read.median);
  EXPECT_EQ(json["bf16"].is_null(), !native);
  EXPECT_EQ(LimitsCsv(*limits).find("\nbf16,OP/s,") != std::string::npos, native);
  EXPECT_EQ(LimitsCsv(*limits).find("disk"), std::string::npos);
  EXPECT_NE(LimitsTable(*limits).find("read from memory"), std::string::npos);
}

TEST(MachineLimits, OfADiskAreMeasuredInAFolder) {
  const Result<Measured> disk = MeasureDisk(testing::TempDir(), 2, nullptr);
  ASSERT_TRUE(disk) << disk.error().message;
  EXPECT_EQ(disk->n, 2);
  EXPECT_GT(disk->median, 1e5);
  EXPECT_FALSE(MeasureDisk("/no/such/folder", 2, nullptr));
}

TEST(MachineLimits, StopWhereTheyAreInterrupted) {
  ThreadPool pool(1);
  CancelToken cancel;
  cancel.Cancel();
  const Result<MachineLimits> limits = MeasureLimits(pool, 1, &cancel);
  ASSERT_FALSE(limits);
  EXPECT_EQ(limits.error().kind, ErrorKind::kCancelled);
}

}  // namespace
}  // namespace longheads
