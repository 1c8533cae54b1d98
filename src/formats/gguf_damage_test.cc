// Damaged and hostile GGUF files: a sentence for each, never a crash.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "formats/gguf.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_cases.h"

namespace longheads {
namespace {

using Bytes = std::vector<std::byte>;

// Values and tensors of every type; the last tensor ends where the file ends.
Bytes FileWithEverything() {
  GgufBuilder builder = GgufWithEveryValue();
  for (int i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const int64_t block = Info(type).block;
    builder.Tensor(fmt::format("tensor.{}", i), type, {2, block},
                   Bytes(*BytesOf(type, 2 * block), static_cast<std::byte>(i)));
  }
  return builder.Build();
}

TEST(DamagedGguf, IsRefusedInTheWordsOfItsCase) {
  for (const GgufCase& one : GgufCases()) {
    SCOPED_TRACE(one.name);
    const Result<GgufFile> file = GgufFile::Parse(one.bytes, "dir/m.gguf");
    if (one.refusal.empty()) {
      ASSERT_TRUE(file) << file.error().message;
      WalkGguf(*file);
      continue;
    }
    ASSERT_FALSE(file);
    EXPECT_TRUE(file.error().message.starts_with("dir/m.gguf")) << file.error().message;
    EXPECT_NE(file.error().message.find(one.refusal), std::string::npos) << file.error().message;
    EXPECT_TRUE(file.error().kind == ErrorKind::kInvalidInput ||
                file.error().kind == ErrorKind::kUnsupported);
  }
}

TEST(DamagedGguf, IsRefusedWhereverItIsCutOff) {
  const Bytes whole = FileWithEverything();
  ASSERT_TRUE(GgufFile::Parse(whole, "whole"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A vector of its own, so that the address sanitizer sees a byte read past the end.
    const Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<GgufFile> file = GgufFile::Parse(prefix, "prefix");
    ASSERT_FALSE(file) << size;
    ASSERT_TRUE(file.error().message.starts_with("prefix")) << size;
  }
}

TEST(DamagedGguf, NeverCrashesWithFlippedBytes) {
  std::mt19937_64 random(20240229);
  for (const Bytes& whole :
       {FileWithEverything(), TinyLlama({.n_layers = 1, .embed = 16, .head_dim = 4, .ffn = 16})}) {
    // Damage to the data is no business of the reader, so most of it goes to the header.
    const std::size_t header = std::min<std::size_t>(whole.size(), 4096);
    int parsed = 0;
    for (int round = 0; round < 4000; ++round) {
      Bytes damaged = whole;
      const int n_flips = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < n_flips; ++i) {
        const std::size_t at = random() % (round % 8 == 0 ? whole.size() : header);
        damaged[at] ^= static_cast<std::byte>(random() % 2 == 0 ? 1u << (random() % 8) : 1 + random() % 255);
      }
      const Result<GgufFile> file = GgufFile::Parse(damaged, "damaged");
      if (!file) {
        ASSERT_TRUE(file.error().message.starts_with("damaged"));
        continue;
      }
      WalkGguf(*file);
      ++parsed;
    }
    EXPECT_GT(parsed, 0);
    EXPECT_LT(parsed, 4000);
  }
}

TEST(DamagedGguf, MayNotHoldAStringAboveTheLimit) {
  const Bytes bytes = GgufBuilder().Set("k", std::string((std::size_t{1} << 24) + 1, 'x')).Build();
  const Result<GgufFile> file = GgufFile::Parse(bytes, "long");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("claims a string of 16777217 bytes; the limit is 16777216"),
            std::string::npos);
}

TEST(DamagedGguf, IsNamedByItsPathWhenOpened) {
  const std::string path = fmt::format("{}longheads_damaged_{}", testing::TempDir(), getpid());
  const Result<GgufFile> missing = GgufFile::Open(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, path + ": there is no such file; check the path");

  GgufBuilder builder;
  builder.version = 1;
  ASSERT_TRUE(builder.Write(path));
  const Result<GgufFile> old = GgufFile::Open(path);
  std::remove(path.c_str());
  ASSERT_FALSE(old);
  EXPECT_TRUE(old.error().message.starts_with(path + ": GGUF version 1")) << old.error().message;
}

}  // namespace
}  // namespace longheads
