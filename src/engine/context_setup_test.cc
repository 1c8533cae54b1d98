#include "engine/context_setup.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

ContextSetup Sample() {
  ContextSetup setup;
  setup.program = "longheads 1";
  setup.model = "m\"odel.gguf";
  setup.model_fingerprint = 0xfedcba9876543210;
  setup.tokenizer_fingerprint = 7;
  setup.attention = "ntk:factor=2+longheads,chunk=64";
  setup.attention_in_full = "ntk:factor=2+longheads,chunk=64,window=4096";
  setup.rope.scaling = "yarn";
  setup.rope.scale = 4;
  setup.rope.orig_ctx = 2048;
  setup.compute = "int8";
  setup.kv_type = "q8";
  setup.expected_tokens = 123456789012;
  setup.blocks = {.ram = int64_t{1} << 48, .parts = 8};
  setup.chat = true;
  setup.source =
      "b\xC3\xBC"
      "cher/book.txt";
  return setup;
}
const ContextSetup kSetup = Sample();

TEST(ContextSetup, ComesBackAsItWas) {
  const auto setup = ParseContextSetup("f", WriteContextSetup(kSetup));
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(WriteContextSetup(*setup), WriteContextSetup(kSetup));
  EXPECT_EQ(setup->rope.orig_ctx, 2048);
  EXPECT_EQ(setup->model_fingerprint, kSetup.model_fingerprint);
  EXPECT_EQ(setup->source, kSetup.source);
}

TEST(ContextSetup, AnythingElseIsRefusedWithTheFilesName) {
  const std::string whole = WriteContextSetup(kSetup);
  for (std::string text :
       {std::string(), std::string("{}"), std::string("[]"), whole.substr(0, whole.size() - 1),
        std::string("{\"program\":1}"), std::string("null")}) {
    const auto setup = ParseContextSetup("book.lhctx", text);
    ASSERT_FALSE(setup) << text;
    EXPECT_TRUE(setup.error().message.starts_with("book.lhctx: ")) << setup.error().message;
  }
  std::string bad_hex = whole;
  bad_hex.replace(bad_hex.find("fedcba"), 6, "xxxxxx");
  EXPECT_FALSE(ParseContextSetup("f", bad_hex));
  std::string parts = whole;
  const std::string eight = "\"block_parts\":8,";
  parts.replace(parts.find(eight), eight.size(), "\"block_parts\":33,");
  EXPECT_FALSE(ParseContextSetup("f", parts));
  parts.replace(parts.find("33,"), 3, "\"8\",");
  EXPECT_FALSE(ParseContextSetup("f", parts));
}

TEST(ContextSetup, OfEarlierProgramsHadTheMostParts) {
  std::string text = WriteContextSetup(kSetup);
  const std::string eight = "\"block_parts\":8,";
  text.erase(text.find(eight), eight.size());
  const auto setup = ParseContextSetup("f", text);
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->blocks.parts, BlockFit::kMostParts);
}

}  // namespace
}  // namespace longheads
