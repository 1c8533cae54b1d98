#include "tests/support/gguf_cases.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <utility>

namespace longheads {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kHuge = uint64_t{1} << 60;
constexpr std::size_t kKeyCountAt = 16;
constexpr std::size_t kFirstKeyAt = 24;  // after magic number, version and two counts

Bytes Filled(std::size_t size, int value) { return Bytes(size, static_cast<std::byte>(value)); }

Bytes FromText(std::string_view text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(begin, begin + text.size());
}

template <typename... Numbers>
Bytes Raw(Numbers... numbers) {
  Bytes bytes((sizeof(Numbers) + ...));
  std::byte* to = bytes.data();
  const auto append = [&to](auto number) {
    std::memcpy(to, &number, sizeof(number));
    to += sizeof(number);
  };
  (append(numbers), ...);
  return bytes;
}

Bytes Patched(Bytes bytes, std::size_t offset, uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

constexpr uint32_t kStringType = static_cast<uint32_t>(GgufType::kString);
constexpr uint32_t kArrayType = static_cast<uint32_t>(GgufType::kArray);
constexpr uint32_t kBoolType = static_cast<uint32_t>(GgufType::kBool);
constexpr uint32_t kInt32Type = static_cast<uint32_t>(GgufType::kInt32);

// A file with one honest tensor of 8 floats, then one whose line in the table lies.
Bytes WithLie(GgufBuilder::TensorLie lie) {
  GgufBuilder builder;
  builder.Tensor("honest", DType::kF32, {8}, Filled(32, 1))
      .Tensor("liar", DType::kF32, {4, 2}, Filled(32, 2));
  return builder.Lie(std::move(lie)).Build();
}

Bytes WithAlignment(uint32_t alignment) {
  GgufBuilder builder;
  builder.alignment = alignment;
  builder.Set("general.alignment", alignment)
      .Tensor("a", DType::kF32, {1}, Filled(4, 1))
      .Tensor("b", DType::kF32, {1}, Filled(4, 2));
  return builder.Build();
}

Bytes WithHeader(uint32_t version, std::optional<uint64_t> tensor_count = {},
                 std::optional<uint64_t> metadata_count = {}) {
  GgufBuilder builder;
  builder.version = version;
  builder.tensor_count = tensor_count;
  builder.metadata_count = metadata_count;
  return builder.Set("k", "v").Build();
}

class CaseList {
 public:
  void Parses(std::string name, Bytes bytes) { cases_.push_back({std::move(name), std::move(bytes), ""}); }
  void Refused(std::string name, Bytes bytes, std::string words) {
    cases_.push_back({std::move(name), std::move(bytes), std::move(words)});
  }
  std::vector<GgufCase> Take() { return std::move(cases_); }

 private:
  std::vector<GgufCase> cases_;
};

void AddGoodFiles(CaseList& list) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder values = GgufWithEveryValue();
    values.version = version;
    list.Parses(fmt::format("values-v{}", version), values.Build());
    GgufBuilder tensors = GgufWithEveryTensorType();
    tensors.version = version;
    list.Parses(fmt::format("tensors-v{}", version), tensors.Build());
  }
  list.Parses("nothing", GgufBuilder().Build());
  list.Parses("dimensions", GgufBuilder()
                                .Tensor("one", DType::kF32, {5}, Filled(20, 1))
                                .Tensor("three", DType::kF16, {2, 3, 5}, Filled(60, 3))
                                .Tensor("four", DType::kQ8_0, {2, 1, 3, 32}, Filled(204, 4))
                                .Build());
  list.Parses("alignment-8", WithAlignment(8));
  list.Parses("alignment-512", WithAlignment(512));
  list.Parses("split-into-one", GgufBuilder().Set("split.count", uint16_t{1}).Build());
  list.Parses("vocabulary", GgufBuilder()
                                .Set("tokenizer.ggml.model", "gpt2")
                                .Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"})
                                .Set("tokenizer.ggml.scores", std::vector<float>{0, -1, -2})
                                .Set("tokenizer.ggml.merges", std::vector<std::string>{"a b"})
                                .Build());
}

void AddOtherFormats(CaseList& list) {
  list.Refused("no-bytes", {}, "is not a GGUF file");
  list.Refused("magic-cut", FromText("GGU"), "ends inside the magic number (its size is 3 bytes)");
  list.Refused("text", FromText("Once upon a time there was a file."), "name a GGUF model file");
  list.Refused("lfs-pointer", FromText("version https://git-lfs.github.com/spec/v1"), "Git LFS pointer");
  list.Refused("web-page", FromText("<!DOCTYPE html><html>"), "web page");
  list.Refused("web-page-small", FromText("<!doctype html><html>"), "web page");
  list.Refused("web-page-bare", FromText("<html><body>"), "web page");
  list.Refused("ggjt", FromText(std::string_view("tjgg\1\0\0\0", 8)), "before GGUF");
  list.Refused("ggml", FromText(std::string_view("lmgg\1\0\0\0", 8)), "before GGUF");
  list.Refused("ggmf", FromText(std::string_view("fmgg\1\0\0\0", 8)), "before GGUF");
  list.Refused("zip", FromText("PK\3\4"), "zip archive or a PyTorch checkpoint");
  list.Refused("safetensors", FromText(std::string_view("\x40\0\0\0\0\0\0\0{\"a\":1}", 15)), "safetensors");
}

void AddBadHeaders(CaseList& list) {
  list.Refused("version-0", WithHeader(0), "GGUF version 0 is not read");
  list.Refused("version-1", WithHeader(1), "GGUF version 1 is not read, only 2 and 3");
  list.Refused("version-4", WithHeader(4), "GGUF version 4 is not read");
  for (const uint32_t version : {1u, 2u, 3u}) {
    list.Refused(fmt::format("big-endian-v{}", version), WithHeader(version << 24), "a big-endian GGUF file");
  }
  list.Refused("huge-tensor-count", WithHeader(3, kHuge), "claims 1152921504606846976 tensors");
  list.Refused("huge-key-count", WithHeader(3, {}, kHuge), "1152921504606846976 metadata keys");
  list.Refused("one-key-too-many",
               Patched(GgufBuilder().Set("k", std::string(40, 'v')).Build(), kKeyCountAt, 2),
               "ends inside the name of metadata key 1");
  list.Refused("split", GgufBuilder().Set("split.count", uint16_t{3}).Build(),
               "one of 3 parts of a split model");
  list.Refused("split-text", GgufBuilder().Set("split.count", "3").Build(),
               "'split.count' is a string, not an integer");
  for (const uint32_t alignment : {0u, 4u, 48u, 1u << 22}) {
    list.Refused(fmt::format("alignment-{}-refused", alignment),
                 GgufBuilder().Set("general.alignment", alignment).Build(),
                 fmt::format("general.alignment is {}; it must be a power of two", alignment));
  }
  list.Refused("alignment-text", GgufBuilder().Set("general.alignment", "32").Build(),
               "'general.alignment' is a string, not an integer");
  list.Refused("alignment-huge", GgufBuilder().Set("general.alignment", ~uint64_t{0}).Build(),
               "is 18446744073709551615, not a number below 2^63");
}

void AddBadKeys(CaseList& list) {
  const auto value = [&list](std::string name, uint32_t type, Bytes bytes, std::string words) {
    GgufBuilder builder;
    builder.SetRaw("the key", type, std::move(bytes));
    list.Refused(std::move(name), builder.Build(), "metadata key 'the key' " + words);
  };
  list.Refused("key-empty", GgufBuilder().Set("", "v").Build(), "the name of metadata key 0 is empty");
  list.Refused("key-twice", GgufBuilder().Set("k", "v").Set("k", "w").Build(),
               "metadata key 'k' stands there twice");
  list.Refused("key-long", GgufBuilder().Set(std::string(65536, 'k'), "v").Build(),
               "claims a string of 65536 bytes; the limit is 65535");
  list.Refused("key-huge", Patched(GgufBuilder().Set("k", "v").Build(), kFirstKeyAt, kHuge),
               "the name of metadata key 0 claims a string of 1152921504606846976 bytes, but");
  list.Refused("key-unprintable", GgufBuilder().SetRaw("a\x1b[31m\x7f", 77, {}).Build(),
               "metadata key 'a\\x1b[31m\\x7f' has value type 77");
  list.Refused("key-cut-in-message", GgufBuilder().SetRaw(std::string(81, 'k'), 77, {}).Build(),
               std::string(80, 'k') + "...' has value type 77");
  value("value-type", 13, Raw(uint64_t{0}), "has value type 13, which GGUF does not define");
  value("bool-2", kBoolType, Raw(uint8_t{2}), "has 2 for a bool");
  value("string-huge", kStringType, Raw(kHuge),
        "claims a string of 1152921504606846976 bytes, but 0 bytes are left");
  value("array-of-arrays", kArrayType, Raw(kArrayType, uint64_t{1}, kInt32Type, uint64_t{0}),
        "is an array of arrays");
  value("array-type", kArrayType, Raw(uint32_t{13}, uint64_t{0}), "has array element type 13");
  list.Refused("array-count-cut",
               GgufBuilder().SetRaw("key", kArrayType, Raw(kInt32Type, uint32_t{3})).Build(),
               "ends inside metadata key 'key'");
  Bytes no_type = GgufBuilder().Set("a long key", true).Build();
  no_type.resize(no_type.size() - 3);
  list.Refused("value-type-cut", std::move(no_type), "ends inside metadata key 'a long key'");
  value("array-huge", kArrayType, Raw(kInt32Type, kHuge),
        "claims an array of 1152921504606846976 elements; the limit is 16777216");
  value("array-cut", kArrayType, Raw(kInt32Type, uint64_t{3}, 1, 2),
        "claims an array of 3 elements, which takes at least 12 bytes; 8 bytes are left");
  value("strings-cut", kArrayType, Raw(kStringType, uint64_t{2}, uint64_t{0}),
        "claims an array of 2 elements, which takes at least 16 bytes; 8 bytes are left");
  value("strings-huge", kArrayType, Raw(kStringType, uint64_t{1}, kHuge),
        "claims a string of 1152921504606846976");
  value("bools-2", kArrayType, Raw(kBoolType, uint64_t{2}, uint8_t{1}, uint8_t{2}), "has 2 for a bool");
  value("bools-cut", kArrayType, Raw(kBoolType, uint64_t{2}, uint8_t{1}), "claims an array of 2 elements");
  list.Refused("value-cut", GgufBuilder().SetRaw("k", kInt32Type, Raw(uint16_t{1})).Build(),
               "ends inside metadata key 'k'");
}

// Values and arrays of every type whose bytes are missing, and a small file cut off at every byte.
void AddCutFiles(CaseList& list) {
  for (uint32_t type = 0; type <= static_cast<uint32_t>(GgufType::kFloat64); ++type) {
    list.Refused(fmt::format("scalar-{}-cut", type), GgufBuilder().SetRaw("key", type, {}).Build(),
                 "ends inside metadata key 'key'");
    if (type == kArrayType) continue;
    list.Refused(fmt::format("array-{}-cut", type),
                 GgufBuilder().SetRaw("k", kArrayType, Raw(type, uint64_t{3})).Build(),
                 "metadata key 'k' claims an array of 3 elements");
  }
  const Bytes whole =
      GgufBuilder().Set("k", std::vector<int32_t>{1}).Tensor("t", DType::kF32, {1, 1}, Filled(4, 1)).Build();
  for (std::size_t size = 1; size < whole.size(); ++size) {
    list.Refused(fmt::format("cut-at-{}", size),
                 Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)), "cut off");
  }
}

void AddBadTensors(CaseList& list) {
  using Dims = std::vector<uint64_t>;
  list.Refused("tensor-no-name", GgufBuilder().Tensor("", DType::kF32, {1}, Filled(4, 0)).Build(),
               "the name of tensor 0 is empty");
  list.Refused("tensor-long-name",
               GgufBuilder().Tensor(std::string(257, 'n'), DType::kF32, {1}, Filled(4, 0)).Build(),
               "claims a string of 257 bytes; the limit is 256");
  list.Refused("tensor-twice",
               GgufBuilder()
                   .Tensor("t", DType::kF32, {1}, Filled(4, 0))
                   .Tensor("t", DType::kF32, {1}, Filled(4, 0))
                   .Build(),
               "tensor 't' stands there twice");
  list.Refused("tensor-0-dimensions", WithLie({.n_dims = 0}), "has 0 dimensions; 1 to 4 are possible");
  list.Refused("tensor-5-dimensions", WithLie({.n_dims = 5}), "has 5 dimensions; 1 to 4 are possible");
  list.Refused("tensor-empty", WithLie({.dims = Dims{2, 0}}), "has a dimension of 0");
  list.Refused("elements-overflow", WithLie({.dims = Dims{uint64_t{1} << 32, uint64_t{1} << 32}}),
               "has more elements than 64 bits can count");
  list.Refused("elements-negative", WithLie({.dims = Dims{uint64_t{1} << 63}}),
               "has more elements than 64 bits can count");
  list.Refused("bytes-overflow", WithLie({.dims = Dims{uint64_t{1} << 62}}),
               "has more bytes than 64 bits can count");
  list.Refused("bytes-beyond", WithLie({.dims = Dims{2, 5}}), "tensor 'liar' takes 40 bytes at offset 32");
  list.Refused("blocks", WithLie({.type = 2, .dims = Dims{33, 2}}),
               "has rows of 33 elements, but Q4_0 stores whole blocks of 32");
  list.Refused("offset-unaligned", WithLie({.offset = 8}),
               "begins at offset 8, which is no multiple of the alignment 32");
  list.Refused("offset-beyond", WithLie({.offset = 4096}),
               "takes 32 bytes at offset 4096 of the data, but the file holds 64");
  list.Refused("offset-overflow", WithLie({.offset = ~uint64_t{31}}),
               "at offset 18446744073709551584 of the data");
  list.Refused("overlap", WithLie({.offset = 0}), "overlap; the file is damaged");
  list.Refused("no-data", GgufBuilder().Tensor("t", DType::kF32, {8}, Bytes()).Build(),
               "but the file holds 0 there");
  const std::pair<uint32_t, std::string_view> unread[] = {
      {4, "Q4_2"},        {5, "Q4_3"},
      {9, "Q8_1"},        {10, "Q2_K"},
      {11, "Q3_K"},       {15, "Q8_K"},
      {16, "IQ2_XXS"},    {17, "IQ2_XS"},
      {18, "IQ3_XXS"},    {19, "IQ1_S"},
      {20, "IQ4_NL"},     {21, "IQ3_S"},
      {22, "IQ2_S"},      {23, "IQ4_XS"},
      {24, "I8"},         {25, "I16"},
      {26, "I32"},        {27, "I64"},
      {28, "F64"},        {29, "IQ1_M"},
      {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
      {33, "Q4_0_8_8"},   {34, "TQ1_0"},
      {35, "TQ2_0"},      {36, "IQ4_NL_4_4"},
      {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
      {39, "MXFP4"},      {40, "NVFP4"},
      {41, "Q1_0"},       {42, "Q2_0"},
      {43, "number 43"},  {0x80000000, "number 2147483648"}};
  for (const auto& [number, name] : unread) {
    list.Refused(
        fmt::format("type-{}", number), WithLie({.type = number}),
        fmt::format("tensor 'liar' has type {}, which longheads does not read; it reads F32, F16, Q4_0",
                    name));
  }
}

}  // namespace

GgufBuilder GgufWithEveryValue() {
  GgufBuilder builder;
  builder.Set("u8", uint8_t{255})
      .Set("i8", int8_t{-128})
      .Set("u16", uint16_t{65535})
      .Set("i16", int16_t{-32768})
      .Set("u32", uint32_t{4294967295})
      .Set("i32", std::numeric_limits<int32_t>::min())
      .Set("u64", std::numeric_limits<uint64_t>::max())
      .Set("i64", std::numeric_limits<int64_t>::min())
      .Set("f32", 0.1f)
      .Set("f64", 0.1)
      .Set("yes", true)
      .Set("no", false)
      .Set("string", "Xin chào")
      .Set("empty string", "");
  builder.Set("u8s", std::vector<uint8_t>{0, 255})
      .Set("i8s", std::vector<int8_t>{-128, 127})
      .Set("u16s", std::vector<uint16_t>{0, 65535})
      .Set("i16s", std::vector<int16_t>{-32768, 32767})
      .Set("u32s", std::vector<uint32_t>{0, 4294967295})
      .Set("i32s", std::vector<int32_t>{-1, 1})
      .Set("u64s", std::vector<uint64_t>{0, std::numeric_limits<uint64_t>::max()})
      .Set("i64s", std::vector<int64_t>{-1, std::numeric_limits<int64_t>::max()})
      .Set("f32s", std::vector<float>{0.5f, -0.25f})
      .Set("f64s", std::vector<double>{0.1, 1e300})
      .Set("bools", std::vector<bool>{true, false, true})
      .Set("strings", std::vector<std::string>{"a", "", "ccc"})
      .Set("no strings", std::vector<std::string>{})
      .Set("no ints", std::vector<int32_t>{});
  return builder;
}

GgufBuilder GgufWithEveryTensorType() {
  GgufBuilder builder;
  for (int i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    builder.Tensor(fmt::format("t{}", i), type, {3, 512}, Filled(*BytesOf(type, 3 * 512), i + 1));
  }
  return builder;
}

std::vector<GgufCase> GgufCases() {
  CaseList list;
  AddGoodFiles(list);
  AddOtherFormats(list);
  AddBadHeaders(list);
  AddBadKeys(list);
  AddCutFiles(list);
  AddBadTensors(list);
  return list.Take();
}

uint64_t WalkGguf(const GgufFile& file) {
  uint64_t sum = file.version() + file.file_bytes() + file.name().size();
  for (const std::string& key : file.keys()) {
    sum += file.Find(key)->index();
    sum += static_cast<uint64_t>(file.GetInt(key).value_or(1));
    sum += file.GetFloat(key).value_or(0) > 1;
    sum += file.GetBool(key).value_or(false);
    if (const auto text = file.GetString(key)) sum += std::hash<std::string>()(*text);
    if (const auto numbers = file.GetInts(key)) {
      for (const int64_t number : *numbers) sum += static_cast<uint64_t>(number);
    }
    if (const auto numbers = file.GetFloats(key)) {
      for (const double number : *numbers) sum += number > 1;
    }
    if (const auto texts = file.GetStrings(key)) {
      for (const std::string& text : **texts) sum += std::hash<std::string>()(text);
    }
  }
  for (const std::string& name : file.tensor_names()) {
    const TensorView& view = *file.FindTensor(name);
    sum += static_cast<uint64_t>(view.rows() + view.columns());
    const std::span data(view.data, *BytesOf(view.type, view.elements()));
    for (const std::byte byte : data) sum = sum * 31 + static_cast<uint64_t>(byte);
  }
  constexpr std::string_view kNoKey = "no such key";
  sum += file.Find(kNoKey) == nullptr;
  sum += !file.GetInt(kNoKey) && !file.GetFloat(kNoKey) && !file.GetBool(kNoKey) && !file.GetString(kNoKey);
  sum += !file.GetInts(kNoKey) && !file.GetFloats(kNoKey) && !file.GetStrings(kNoKey);
  return sum + (file.FindTensor("no such tensor") == nullptr);
}

}  // namespace longheads
