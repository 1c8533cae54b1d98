#include "formats/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <limits>

#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_cases.h"

namespace longheads {
namespace {

using Bytes = std::vector<std::byte>;

GgufFile ParseOrFail(const Bytes& bytes) {
  Result<GgufFile> file = GgufFile::Parse(bytes, "test.gguf");
  EXPECT_TRUE(file) << (file ? "" : file.error().message);
  if (!file) std::abort();
  return std::move(*file);
}

Bytes Filled(std::size_t size, int value) { return Bytes(size, static_cast<std::byte>(value)); }

TEST(Gguf, ReadsEveryMetadataTypeInBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = GgufWithEveryValue();
    builder.version = version;
    const Bytes bytes = builder.Build();
    const GgufFile file = ParseOrFail(bytes);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.file_bytes(), bytes.size());
    EXPECT_EQ(file.name(), "test.gguf");
    EXPECT_EQ(file.keys().size(), 28u);
    EXPECT_EQ(file.keys().front(), "u8");
    EXPECT_EQ(*file.GetInt("u8"), 255);
    EXPECT_EQ(*file.GetInt("i8"), -128);
    EXPECT_EQ(*file.GetInt("u16"), 65535);
    EXPECT_EQ(*file.GetInt("i16"), -32768);
    EXPECT_EQ(*file.GetInt("u32"), 4294967295);
    EXPECT_EQ(*file.GetInt("i32"), std::numeric_limits<int32_t>::min());
    EXPECT_EQ(std::get<uint64_t>(*file.Find("u64")), std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(*file.GetInt("i64"), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(*file.GetFloat("f32"), static_cast<double>(0.1f));
    EXPECT_EQ(*file.GetFloat("f64"), 0.1);
    EXPECT_TRUE(*file.GetBool("yes"));
    EXPECT_FALSE(*file.GetBool("no"));
    EXPECT_EQ(*file.GetString("string"), "Xin chào");
    EXPECT_EQ(*file.GetString("empty string"), "");
    using Ints = std::vector<int64_t>;
    EXPECT_EQ(*file.GetInts("u8s"), (Ints{0, 255}));
    EXPECT_EQ(*file.GetInts("i8s"), (Ints{-128, 127}));
    EXPECT_EQ(*file.GetInts("u16s"), (Ints{0, 65535}));
    EXPECT_EQ(*file.GetInts("i16s"), (Ints{-32768, 32767}));
    EXPECT_EQ(*file.GetInts("u32s"), (Ints{0, 4294967295}));
    EXPECT_EQ(*file.GetInts("i32s"), (Ints{-1, 1}));
    EXPECT_EQ(*file.GetInts("i64s"), (Ints{-1, std::numeric_limits<int64_t>::max()}));
    EXPECT_EQ(*file.GetInts("bools"), (Ints{1, 0, 1}));
    EXPECT_EQ(*file.GetInts("no ints"), Ints{});
    EXPECT_EQ(*file.GetFloats("f32s"), (std::vector<double>{0.5, -0.25}));
    EXPECT_EQ(*file.GetFloats("f64s"), (std::vector<double>{0.1, 1e300}));
    EXPECT_EQ(**file.GetStrings("strings"), (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_TRUE((*file.GetStrings("no strings"))->empty());
  }
}

TEST(Gguf, NamesTheKeyThatIsMissingOrOfAnotherType) {
  const Bytes bytes = GgufWithEveryValue().Build();
  const GgufFile file = ParseOrFail(bytes);
  EXPECT_EQ(file.Find("nothing"), nullptr);
  const auto message = [](const auto& result) { return result ? "no error" : result.error().message; };
  EXPECT_NE(message(file.GetInt("nothing")).find("'nothing' is missing"), std::string::npos);
  EXPECT_NE(message(file.GetInts("nothing")).find("'nothing' is missing"), std::string::npos);
  EXPECT_NE(message(file.GetInt("string")).find("'string' is a string, not an integer"), std::string::npos);
  EXPECT_NE(message(file.GetInt("u64")).find("not a number below 2^63"), std::string::npos);
  EXPECT_NE(message(file.GetInts("u64s")).find("not numbers below 2^63"), std::string::npos);
  EXPECT_NE(message(file.GetInts("f32s")).find("is an array of floats, not an array of integers"),
            std::string::npos);
  EXPECT_NE(message(file.GetFloat("u8")).find("is an unsigned integer, not a float"), std::string::npos);
  EXPECT_NE(message(file.GetBool("i8")).find("is a signed integer, not a bool"), std::string::npos);
  EXPECT_NE(message(file.GetString("yes")).find("is a bool, not a string"), std::string::npos);
  EXPECT_NE(message(file.GetStrings("i8s")).find("is an array of signed integers, not an array of strings"),
            std::string::npos);
  EXPECT_NE(message(file.GetFloats("u8s")).find("is an array of unsigned integers, not an array of floats"),
            std::string::npos);
  EXPECT_NE(message(file.GetFloats("strings")).find("is an array of strings"), std::string::npos);
  EXPECT_NE(message(file.GetBool("f64")).find("is a float"), std::string::npos);
}

TEST(Gguf, ViewsTensorsOfEveryTypeOutermostFirst) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = GgufWithEveryTensorType();
    builder.version = version;
    const Bytes bytes = builder.Build();
    const GgufFile file = ParseOrFail(bytes);
    ASSERT_EQ(file.tensor_names().size(), std::size_t{kDTypes});
    for (int i = 0; i < kDTypes; ++i) {
      EXPECT_EQ(file.tensor_names()[i], fmt::format("t{}", i));
      const TensorView* const view = file.FindTensor(fmt::format("t{}", i));
      ASSERT_NE(view, nullptr);
      EXPECT_EQ(view->type, static_cast<DType>(i));
      EXPECT_EQ(view->n_dims, 2);
      EXPECT_EQ(view->shape, (std::array<int64_t, 4>{3, 512, 1, 1}));
      EXPECT_EQ(view->rows(), 3);
      EXPECT_EQ(view->columns(), 512);
      EXPECT_EQ((view->data - bytes.data()) % 32, 0);
      const std::size_t size = *BytesOf(view->type, 512) * 3;
      EXPECT_EQ(Bytes(view->data, view->data + size), Filled(size, i + 1));
    }
    EXPECT_EQ(file.FindTensor("t"), nullptr);
  }
}

TEST(Gguf, ReadsOneToFourDimensions) {
  GgufBuilder builder;
  builder.Tensor("one", DType::kF32, {5}, Filled(20, 1))
      .Tensor("three", DType::kF32, {2, 3, 5}, Filled(120, 3))
      .Tensor("four", DType::kF32, {7, 2, 3, 5}, Filled(840, 4));
  const Bytes bytes = builder.Build();
  const GgufFile file = ParseOrFail(bytes);
  EXPECT_EQ(file.FindTensor("one")->shape, (std::array<int64_t, 4>{5, 1, 1, 1}));
  EXPECT_EQ(file.FindTensor("one")->columns(), 5);
  EXPECT_EQ(file.FindTensor("three")->shape, (std::array<int64_t, 4>{2, 3, 5, 1}));
  EXPECT_EQ(file.FindTensor("four")->shape, (std::array<int64_t, 4>{7, 2, 3, 5}));
  EXPECT_EQ(file.FindTensor("four")->rows(), 42);
}

TEST(Gguf, FollowsTheAnnouncedAlignment) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.Set("general.alignment", alignment)
        .Tensor("a", DType::kF32, {1}, Filled(4, 1))
        .Tensor("b", DType::kF32, {1}, Filled(4, 2));
    const Bytes bytes = builder.Build();
    const GgufFile file = ParseOrFail(bytes);
    EXPECT_EQ(file.FindTensor("b")->data - file.FindTensor("a")->data, alignment);
    EXPECT_EQ(*file.FindTensor("b")->data, std::byte{2});
  }
}

TEST(Gguf, ReadsAFileThatHoldsOnlyAVocabulary) {
  constexpr int kTokens = 250000;
  std::vector<std::string> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(fmt::format("token{}", i));
  GgufBuilder builder;
  builder.Set("tokenizer.ggml.tokens", tokens)
      .Set("tokenizer.ggml.scores", std::vector<float>(kTokens, 1.0f))
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>(kTokens, 1));
  const Bytes bytes = builder.Build();
  const GgufFile file = ParseOrFail(bytes);
  EXPECT_TRUE(file.tensor_names().empty());
  EXPECT_EQ(**file.GetStrings("tokenizer.ggml.tokens"), tokens);
  EXPECT_EQ(file.GetFloats("tokenizer.ggml.scores")->size(), std::size_t{kTokens});
}

TEST(Gguf, AcceptsTheOnlyPartOfAModelThatIsNotSplit) {
  GgufBuilder builder;
  builder.Set("split.count", uint16_t{1}).Set("split.no", uint16_t{0});
  ParseOrFail(builder.Build());
  ParseOrFail(GgufBuilder().Set("split.count", uint16_t{0}).Build());
}

TEST(Gguf, OpensAFileAndKeepsItMappedAfterAMove) {
  const std::string path = testing::TempDir() + "longheads_gguf_" + std::to_string(getpid());
  ASSERT_TRUE(GgufBuilder().Set("k", "v").Tensor("t", DType::kF32, {2}, Filled(8, 7)).Write(path));
  Result<GgufFile> opened = GgufFile::Open(path);
  ASSERT_TRUE(opened) << opened.error().message;
  const GgufFile moved = std::move(*opened);
  std::remove(path.c_str());
  EXPECT_EQ(moved.name(), path);
  EXPECT_EQ(*moved.GetString("k"), "v");
  EXPECT_EQ(moved.FindTensor("t")->data[7], std::byte{7});
}

TEST(TinyLlama, ParsesInEveryWeightTypeTheBuilderCanWrite) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                           DType::kQ5_1, DType::kQ8_0}) {
    const Bytes bytes = TinyLlama({.tied = false, .attention_biases = true, .weight_type = type});
    const GgufFile file = ParseOrFail(bytes);
    EXPECT_EQ(file.tensor_names().size(), 3u + 2 * 13);
    EXPECT_EQ(file.FindTensor("output.weight")->type, type);
    EXPECT_EQ(file.FindTensor("blk.1.ffn_down.weight")->shape, (std::array<int64_t, 4>{64, 96, 1, 1}));
    EXPECT_EQ(file.FindTensor("blk.1.attn_k.bias")->shape, (std::array<int64_t, 4>{32, 1, 1, 1}));
    EXPECT_EQ((*file.GetStrings("tokenizer.ggml.tokens"))->size(), 272u);
  }
}

TEST(TinyLlama, HoldsTheDocumentedValues) {
  const TinyLlamaOptions options;
  const Bytes bytes = TinyLlama(options);
  const GgufFile file = ParseOrFail(bytes);
  const auto* const embedding = reinterpret_cast<const float*>(file.FindTensor("token_embd.weight")->data);
  const auto* const norm = reinterpret_cast<const float*>(file.FindTensor("output_norm.weight")->data);
  const auto* const query = reinterpret_cast<const float*>(file.FindTensor("blk.0.attn_q.weight")->data);
  // Made by a Python script from the definition in the header alone.
  EXPECT_EQ(embedding[0], 0x1.8123440000000p-2f);
  EXPECT_EQ(embedding[1], 0x1.389d900000000p-3f);
  EXPECT_EQ(embedding[1000], 0x1.ac2e500000000p-4f);
  EXPECT_EQ(norm[63], 0x1.1b4a4c0000000p+0f);
  EXPECT_EQ(query[0], -0x1.1cab640000000p-5f);
  // Query head 1 (rows 16-31), dimension 3 of the first half and of the second: rows 6 and 7 of the head.
  const std::vector<float> halves = TinyLlamaValues(options.seed, "blk.0.attn_q.weight", 64 * 64, 64);
  EXPECT_EQ(query[(16 + 6) * 64 + 5], halves[(16 + 3) * 64 + 5]);
  EXPECT_EQ(query[(16 + 7) * 64 + 5], halves[(16 + 8 + 3) * 64 + 5]);
}

float HalfToFloat(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31;
  if (exponent == 0) return sign * static_cast<float>(bits & 1023) * 0x1p-24f;
  float scale = 0x1p-25f;
  for (int i = 0; i < exponent; ++i) scale *= 2;
  return sign * static_cast<float>(1024 + (bits & 1023)) * scale;
}

// The neighbours of a half: exact values, and the ties between them, which go to the even one.
TEST(EncodeTensor, RoundsToHalfWithTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float here = HalfToFloat(static_cast<uint16_t>(bits));
    const float next = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = here + (next - here) / 2;
    const float values[] = {here, -here, middle, here + (next - here) / 4};
    const Bytes bytes = EncodeTensor(DType::kF16, values);
    uint16_t halves[4];
    std::memcpy(halves, bytes.data(), sizeof(halves));
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(halves[0], bits);
    ASSERT_EQ(halves[1], bits | 0x8000);
    ASSERT_EQ(halves[2], even);
    ASSERT_EQ(halves[3], bits);
  }
  const float extremes[] = {65519.0f, 65520.0f, -std::numeric_limits<float>::infinity(), 0x1p-26f};
  uint16_t halves[4];
  std::memcpy(halves, EncodeTensor(DType::kF16, extremes).data(), sizeof(halves));
  EXPECT_EQ(halves[0], 0x7bff);
  EXPECT_EQ(halves[1], 0x7c00);
  EXPECT_EQ(halves[2], 0xfc00);
  EXPECT_EQ(halves[3], 0);
}

TEST(EncodeTensor, RoundsToBfloat16WithTiesToEven) {
  const float values[] = {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1p-8f + 0x1p-20f, -1.0f};
  uint16_t bits[5];
  std::memcpy(bits, EncodeTensor(DType::kBF16, values).data(), sizeof(bits));
  EXPECT_EQ(bits[0], 0x3f80);
  EXPECT_EQ(bits[1], 0x3f80);
  EXPECT_EQ(bits[2], 0x3f82);
  EXPECT_EQ(bits[3], 0x3f81);
  EXPECT_EQ(bits[4], 0xbf80);
}

}  // namespace
}  // namespace longheads
