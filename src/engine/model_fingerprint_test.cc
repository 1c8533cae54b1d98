#include "engine/model_fingerprint.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

TEST(ModelFingerprint, TellsModelsApart) {
  std::vector<std::byte> bytes = TinyLlama({.seed = 1});
  const ModelFile one(bytes);
  const ModelFile same(bytes);
  bytes.back() ^= std::byte{1};  // the last weight
  const ModelFile other(bytes);
  bytes.resize(bytes.size() - 1);
  const ModelFile shorter(bytes);
  const uint64_t fingerprint = FingerprintModel(one.path()).value();
  EXPECT_EQ(FingerprintModel(same.path()).value(), fingerprint);
  EXPECT_NE(FingerprintModel(other.path()).value(), fingerprint);
  EXPECT_NE(FingerprintModel(shorter.path()).value(), fingerprint);
  EXPECT_FALSE(FingerprintModel(one.path() + ".none"));
  EXPECT_EQ(FingerprintText(0x1234567890abcdef), "1234567890abcdef");
  EXPECT_EQ(FingerprintText(1), "0000000000000001");
}

}  // namespace
}  // namespace longheads
