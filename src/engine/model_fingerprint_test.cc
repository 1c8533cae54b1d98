#include "engine/model_fingerprint.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

TEST(ModelFingerprint, TellsModelsApart) {
  std::vector<std::byte> bytes = TinyLlama({.seed = 1});
  const uint64_t fingerprint = FingerprintModel(bytes);
  EXPECT_EQ(FingerprintModel(TinyLlama({.seed = 1})), fingerprint);
  bytes.back() ^= std::byte{1};  // the last weight
  EXPECT_NE(FingerprintModel(bytes), fingerprint);
  bytes.resize(bytes.size() - 1);
  EXPECT_NE(FingerprintModel(bytes), fingerprint);
}

TEST(ModelFingerprint, IsOfTheFileThatWasOpenedThoughItsNameLeadsToAnotherNow) {
  const ModelFile one(TinyLlama({.seed = 1}));
  const ModelFile other(TinyLlama({.seed = 2}));
  const GgufFile opened = GgufFile::Open(one.path()).value();
  std::filesystem::rename(other.path(), one.path());
  EXPECT_EQ(FingerprintModel(opened), FingerprintModel(TinyLlama({.seed = 1})));
}

TEST(ModelFingerprint, IsWrittenAsSixteenDigits) {
  EXPECT_EQ(FingerprintText(0x1234567890abcdef), "1234567890abcdef");
  EXPECT_EQ(FingerprintText(1), "0000000000000001");
}

}  // namespace
}  // namespace longheads
