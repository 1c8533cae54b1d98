#include "formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "formats/mapped_file.h"

namespace longheads {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

constexpr std::string_view kMagic = "GGUF";
// The format's own limit for keys.
constexpr uint64_t kMaxKeyBytes = 65535;
// The format says 64; some writers go past it.
constexpr uint64_t kMaxTensorNameBytes = 256;
// One string (the longest known are chat templates, below 1 MiB) and one array (the longest known are
// vocabularies and merges, below 2^20 entries). In a file of many gigabytes a damaged count would pass the
// test against the bytes that are left, and widening the elements would take several times as many.
constexpr uint64_t kMaxStringBytes = uint64_t{1} << 24;
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;
// Tensors and keys: the shortest entries (a name of one byte, one dimension; a key of one byte, a bool).
constexpr uint64_t kMinTensorEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kMinKeyEntryBytes = 8 + 1 + 4 + 1;
// Where data begins; at least what float needs, at most a huge page.
constexpr uint64_t kDefaultAlignment = 32;
constexpr int64_t kMinAlignment = 8;
constexpr int64_t kMaxAlignment = int64_t{1} << 21;

enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Every tensor type that ggml has ever numbered, so that a refusal can name it; ours have a DType.
struct FileTensorType {
  std::string_view name;
  std::optional<DType> type;
};
const FileTensorType kTensorTypes[] = {
    {"F32", DType::kF32},          // 0
    {"F16", DType::kF16},          // 1
    {"Q4_0", DType::kQ4_0},        // 2
    {"Q4_1", DType::kQ4_1},        // 3
    {"Q4_2", std::nullopt},        // 4
    {"Q4_3", std::nullopt},        // 5
    {"Q5_0", DType::kQ5_0},        // 6
    {"Q5_1", DType::kQ5_1},        // 7
    {"Q8_0", DType::kQ8_0},        // 8
    {"Q8_1", std::nullopt},        // 9
    {"Q2_K", std::nullopt},        // 10
    {"Q3_K", std::nullopt},        // 11
    {"Q4_K", DType::kQ4_K},        // 12
    {"Q5_K", DType::kQ5_K},        // 13
    {"Q6_K", DType::kQ6_K},        // 14
    {"Q8_K", std::nullopt},        // 15
    {"IQ2_XXS", std::nullopt},     // 16
    {"IQ2_XS", std::nullopt},      // 17
    {"IQ3_XXS", std::nullopt},     // 18
    {"IQ1_S", std::nullopt},       // 19
    {"IQ4_NL", std::nullopt},      // 20
    {"IQ3_S", std::nullopt},       // 21
    {"IQ2_S", std::nullopt},       // 22
    {"IQ4_XS", std::nullopt},      // 23
    {"I8", std::nullopt},          // 24
    {"I16", std::nullopt},         // 25
    {"I32", std::nullopt},         // 26
    {"I64", std::nullopt},         // 27
    {"F64", std::nullopt},         // 28
    {"IQ1_M", std::nullopt},       // 29
    {"BF16", DType::kBF16},        // 30
    {"Q4_0_4_4", std::nullopt},    // 31
    {"Q4_0_4_8", std::nullopt},    // 32
    {"Q4_0_8_8", std::nullopt},    // 33
    {"TQ1_0", std::nullopt},       // 34
    {"TQ2_0", std::nullopt},       // 35
    {"IQ4_NL_4_4", std::nullopt},  // 36
    {"IQ4_NL_4_8", std::nullopt},  // 37
    {"IQ4_NL_8_8", std::nullopt},  // 38
    {"MXFP4", std::nullopt},       // 39
    {"NVFP4", std::nullopt},       // 40
    {"Q1_0", std::nullopt},        // 41
    {"Q2_0", std::nullopt},        // 42
};

std::string SupportedTypes() {
  std::string list;
  for (const FileTensorType& entry : kTensorTypes) {
    if (!entry.type) continue;
    if (!list.empty()) list += ", ";
    list += entry.name;
  }
  return list;
}

// A name from the file as a message may show it: no control characters, no novel.
std::string Quoted(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string quoted = "'";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + (text.size() > kMost ? "...'" : "'");
}

// What people pass for a GGUF file most often, known by its first bytes.
std::string WhatItIs(std::string_view head) {
  if (head.starts_with("version https://git-lfs")) {
    return "it is a Git LFS pointer: fetch the file itself with `git lfs pull`";
  }
  if (head.starts_with("<!DOCTYPE") || head.starts_with("<!doctype") || head.starts_with("<html")) {
    return "it is a web page: download the file itself, not the page about it";
  }
  if (head.starts_with("tjgg") || head.starts_with("lmgg") || head.starts_with("fmgg")) {
    return "it is a GGML file from before GGUF: convert the model again with a current tool";
  }
  if (head.starts_with("PK")) return "it is a zip archive or a PyTorch checkpoint: convert it to GGUF first";
  if (head.size() > 8 && head[8] == '{') return "it looks like safetensors: convert it to GGUF first";
  return "name a GGUF model file";
}

std::string_view TypeName(const GgufValue& value) {
  static constexpr std::string_view kNames[] = {"a bool",
                                                "a signed integer",
                                                "an unsigned integer",
                                                "a float",
                                                "a string",
                                                "an array of signed integers",
                                                "an array of unsigned integers",
                                                "an array of floats",
                                                "an array of strings"};
  return kNames[value.index()];
}

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename T>
using ByName = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

// Walks the header from front to back, beginning after the magic number. `where_` names what is being read,
// for messages.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }
  void set_where(std::string where) { where_ = std::move(where); }

  template <typename T>
  Result<T> Read() {
    if (left() < sizeof(T)) return CutOff();
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // The view lies in the file.
  Result<std::string_view> ReadString(uint64_t most) {
    LH_ASSIGN(const uint64_t size, Read<uint64_t>());
    if (size > left()) {
      return Damaged(fmt::format("claims a string of {} bytes, but {} bytes are left", size, left()));
    }
    if (size > most) return Damaged(fmt::format("claims a string of {} bytes; the limit is {}", size, most));
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_, size);
    position_ += size;
    return text;
  }

  Result<GgufValue> ReadValue(uint32_t type) {
    switch (type) {
      case kUint8:
        return ReadScalar<uint8_t, uint64_t>();
      case kInt8:
        return ReadScalar<int8_t, int64_t>();
      case kUint16:
        return ReadScalar<uint16_t, uint64_t>();
      case kInt16:
        return ReadScalar<int16_t, int64_t>();
      case kUint32:
        return ReadScalar<uint32_t, uint64_t>();
      case kInt32:
        return ReadScalar<int32_t, int64_t>();
      case kUint64:
        return ReadScalar<uint64_t, uint64_t>();
      case kInt64:
        return ReadScalar<int64_t, int64_t>();
      case kFloat32:
        return ReadScalar<float, double>();
      case kFloat64:
        return ReadScalar<double, double>();
      case kBool: {
        LH_ASSIGN(const uint8_t value, Read<uint8_t>());
        if (value > 1) return Damaged(fmt::format("has {} for a bool", value));
        return value == 1;
      }
      case kString: {
        LH_ASSIGN(const std::string_view text, ReadString(kMaxStringBytes));
        return std::string(text);
      }
      case kArray:
        return ReadArray();
      default:
        return Damaged(fmt::format("has value type {}, which GGUF does not define", type));
    }
  }

  tl::unexpected<Error> CutOff() const {
    return InvalidInput(
        fmt::format("{}: the file ends inside {} (its size is {} bytes), so it is cut off; "
                    "download or copy it again",
                    name_, where_, bytes_.size()));
  }
  tl::unexpected<Error> Damaged(std::string_view what) const {
    return InvalidInput(
        fmt::format("{}: {} {} (byte {}); the file is damaged or cut off: download or copy it again", name_,
                    where_, what, position_));
  }

 private:
  template <typename Stored, typename Wide>
  Result<GgufValue> ReadScalar() {
    LH_ASSIGN(const Stored value, Read<Stored>());
    return static_cast<Wide>(value);
  }

  Result<GgufValue> ReadArray() {
    LH_ASSIGN(const uint32_t type, Read<uint32_t>());
    LH_ASSIGN(const uint64_t count, Read<uint64_t>());
    if (count > kMaxArrayElements) {
      return Damaged(
          fmt::format("claims an array of {} elements; the limit is {}", count, kMaxArrayElements));
    }
    switch (type) {
      case kUint8:
        return ReadNumbers<uint8_t, uint64_t>(count);
      case kInt8:
        return ReadNumbers<int8_t, int64_t>(count);
      case kUint16:
        return ReadNumbers<uint16_t, uint64_t>(count);
      case kInt16:
        return ReadNumbers<int16_t, int64_t>(count);
      case kUint32:
        return ReadNumbers<uint32_t, uint64_t>(count);
      case kInt32:
        return ReadNumbers<int32_t, int64_t>(count);
      case kUint64:
        return ReadNumbers<uint64_t, uint64_t>(count);
      case kInt64:
        return ReadNumbers<int64_t, int64_t>(count);
      case kFloat32:
        return ReadNumbers<float, double>(count);
      case kFloat64:
        return ReadNumbers<double, double>(count);
      case kBool:
        return ReadBools(count);
      case kString:
        return ReadStrings(count);
      case kArray:
        return Unsupported(
            fmt::format("{}: {} is an array of arrays, which longheads does not read; convert the "
                        "model again without this key",
                        name_, where_));
      default:
        return Damaged(fmt::format("has array element type {}, which GGUF does not define", type));
    }
  }

  template <typename Stored, typename Wide>
  Result<GgufValue> ReadNumbers(uint64_t count) {
    LH_TRY(CheckArrayFits(count, sizeof(Stored)));
    std::vector<Wide> values(count);
    const std::byte* source = bytes_.data() + position_;
    for (Wide& value : values) {
      Stored stored;
      std::memcpy(&stored, source, sizeof(Stored));
      value = static_cast<Wide>(stored);
      source += sizeof(Stored);
    }
    position_ += count * sizeof(Stored);
    return values;
  }

  Result<GgufValue> ReadBools(uint64_t count) {
    LH_ASSIGN(GgufValue value, (ReadNumbers<uint8_t, uint64_t>(count)));
    for (const uint64_t element : std::get<std::vector<uint64_t>>(value)) {
      if (element > 1) return Damaged(fmt::format("has {} for a bool", element));
    }
    return value;
  }

  Result<GgufValue> ReadStrings(uint64_t count) {
    LH_TRY(CheckArrayFits(count, /*least_bytes=*/8));
    std::vector<std::string> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      LH_ASSIGN(const std::string_view text, ReadString(kMaxStringBytes));
      values.emplace_back(text);
    }
    return values;
  }

  // count is at most kMaxArrayElements, so the product is small.
  Status CheckArrayFits(uint64_t count, uint64_t least_bytes) const {
    if (count * least_bytes <= left()) return {};
    return Damaged(
        fmt::format("claims an array of {} elements, which takes at least {} bytes; {} bytes are left", count,
                    count * least_bytes, left()));
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t position_ = kMagic.size();
  std::string where_ = "the header";
};

// One line of the tensor table.
struct TensorEntry {
  std::string_view name;
  TensorView view;
  uint64_t offset = 0;  // from the start of the data
  uint64_t bytes = 0;
};

Status CheckVersion(uint32_t version, const std::string& name) {
  switch (version) {
    case 2:
    case 3:
      return {};
    case 1:
      return Unsupported(fmt::format(
          "{}: GGUF version 1 is not read, only 2 and 3; convert the model again with a current tool", name));
    case 0x01000000:
    case 0x02000000:
    case 0x03000000:
      return Unsupported(fmt::format(
          "{}: a big-endian GGUF file, and only little-endian ones are read; convert it first", name));
    default:
      return Unsupported(fmt::format("{}: GGUF version {} is not read, only 2 and 3", name, version));
  }
}

Status CheckMagic(std::span<const std::byte> bytes, const std::string& name) {
  constexpr std::size_t kHeadBytes = 64;
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), kHeadBytes));
  if (head.starts_with(kMagic)) return {};
  if (!head.empty() && kMagic.starts_with(head)) {
    return InvalidInput(
        fmt::format("{}: the file ends inside the magic number (its size is {} bytes), so it is cut "
                    "off; download or copy it again",
                    name, bytes.size()));
  }
  return InvalidInput(fmt::format("{} is not a GGUF file; {}", name, WhatItIs(head)));
}

// Dimensions, type and offset; what can be said without knowing where the data begins.
Result<TensorEntry> ReadTensorEntry(HeaderReader& reader, uint64_t index, const std::string& file) {
  reader.set_where(fmt::format("the name of tensor {}", index));
  TensorEntry entry;
  LH_ASSIGN(entry.name, reader.ReadString(kMaxTensorNameBytes));
  if (entry.name.empty()) return reader.Damaged("is empty");

  reader.set_where(fmt::format("tensor {}", Quoted(entry.name)));
  LH_ASSIGN(const uint32_t n_dims, reader.Read<uint32_t>());
  if (n_dims < 1 || n_dims > entry.view.shape.size()) {
    return reader.Damaged(fmt::format("has {} dimensions; 1 to 4 are possible", n_dims));
  }
  entry.view.n_dims = static_cast<int>(n_dims);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {  // the file lists the innermost first
    LH_ASSIGN(const uint64_t dim, reader.Read<uint64_t>());
    const std::optional<uint64_t> product = CheckedMul(elements, dim);
    if (dim == 0) return reader.Damaged("has a dimension of 0");
    if (!product || *product > INT64_MAX) return reader.Damaged("has more elements than 64 bits can count");
    elements = *product;
    entry.view.shape[n_dims - 1 - i] = static_cast<int64_t>(dim);
  }

  LH_ASSIGN(const uint32_t type, reader.Read<uint32_t>());
  if (type >= std::size(kTensorTypes) || !kTensorTypes[type].type) {
    const std::string type_name = type < std::size(kTensorTypes) ? std::string(kTensorTypes[type].name)
                                                                 : fmt::format("number {}", type);
    return Unsupported(
        fmt::format("{}: tensor {} has type {}, which longheads does not read; it reads {}: take "
                    "another quantisation of the model",
                    file, Quoted(entry.name), type_name, SupportedTypes()));
  }
  entry.view.type = *kTensorTypes[type].type;
  const DTypeInfo& info = Info(entry.view.type);
  if (entry.view.columns() % info.block != 0) {
    return reader.Damaged(fmt::format("has rows of {} elements, but {} stores whole blocks of {}",
                                      entry.view.columns(), info.name, info.block));
  }
  const std::optional<uint64_t> bytes = BytesOf(entry.view.type, static_cast<int64_t>(elements));
  if (!bytes) return reader.Damaged("has more bytes than 64 bits can count");
  entry.bytes = *bytes;
  LH_ASSIGN(entry.offset, reader.Read<uint64_t>());
  return entry;
}

// Gives each view its data; refuses what lies outside the file, off its alignment or over another tensor.
Status PlaceTensors(std::vector<TensorEntry>& entries, std::span<const std::byte> bytes, uint64_t data_begin,
                    uint64_t alignment, const std::string& file) {
  const uint64_t data_bytes = bytes.size() - std::min<uint64_t>(data_begin, bytes.size());
  for (TensorEntry& entry : entries) {
    if (entry.offset % alignment != 0) {
      return InvalidInput(
          fmt::format("{}: tensor {} begins at offset {}, which is no multiple of the alignment {}; "
                      "the file is damaged: download or copy it again",
                      file, Quoted(entry.name), entry.offset, alignment));
    }
    const std::optional<uint64_t> end = CheckedAdd(entry.offset, entry.bytes);
    if (!end || *end > data_bytes) {
      return InvalidInput(
          fmt::format("{}: tensor {} takes {} bytes at offset {} of the data, but the file holds {} "
                      "there; it is cut off or damaged: download or copy it again",
                      file, Quoted(entry.name), entry.bytes, entry.offset, data_bytes));
    }
    entry.view.data = bytes.data() + data_begin + entry.offset;
  }
  std::vector<const TensorEntry*> by_offset;
  by_offset.reserve(entries.size());
  for (const TensorEntry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorEntry& before = *by_offset[i - 1];
    if (before.offset + before.bytes <= by_offset[i]->offset) continue;
    return InvalidInput(
        fmt::format("{}: the tensors {} and {} overlap; the file is damaged: download or copy it "
                    "again",
                    file, Quoted(before.name), Quoted(by_offset[i]->name)));
  }
  return {};
}

}  // namespace

struct GgufFile::Impl {
  MappedFile mapping;  // empty where the caller keeps the bytes
  std::span<const std::byte> bytes;
  std::string name;
  uint32_t version = 0;
  std::vector<std::string> keys;
  std::vector<std::string> tensor_names;
  ByName<GgufValue> values;
  ByName<TensorView> tensors;

  Status Parse();
  Status ReadMetadata(HeaderReader& reader, uint64_t n_keys);
  Status RefuseSplitFile() const;
  Result<uint64_t> Alignment() const;
  Status ReadTensors(HeaderReader& reader, uint64_t n_tensors);

  const GgufValue* Find(std::string_view key) const;
  Result<const GgufValue*> Require(std::string_view key) const;
  Result<int64_t> GetInt(std::string_view key) const;
  // The value of `key` as a T, or an error that says what it is and what is wanted.
  template <typename T>
  Result<const T*> Get(std::string_view key, std::string_view wanted) const;
  tl::unexpected<Error> WrongType(std::string_view key, std::string_view is, std::string_view wanted) const;
};

Status GgufFile::Impl::Parse() {
  LH_TRY(CheckMagic(bytes, name));
  HeaderReader reader(bytes, name);
  LH_ASSIGN(version, reader.Read<uint32_t>());
  LH_TRY(CheckVersion(version, name));
  LH_ASSIGN(const uint64_t n_tensors, reader.Read<uint64_t>());
  LH_ASSIGN(const uint64_t n_keys, reader.Read<uint64_t>());
  if (n_tensors > reader.left() / kMinTensorEntryBytes || n_keys > reader.left() / kMinKeyEntryBytes) {
    return reader.Damaged(
        fmt::format("claims {} tensors and {} metadata keys, more than the {} bytes that follow can hold",
                    n_tensors, n_keys, reader.left()));
  }
  LH_TRY(ReadMetadata(reader, n_keys));
  LH_TRY(RefuseSplitFile());
  return ReadTensors(reader, n_tensors);
}

Status GgufFile::Impl::ReadMetadata(HeaderReader& reader, uint64_t n_keys) {
  for (uint64_t i = 0; i < n_keys; ++i) {
    reader.set_where(fmt::format("the name of metadata key {}", i));
    LH_ASSIGN(const std::string_view key, reader.ReadString(kMaxKeyBytes));
    if (key.empty()) return reader.Damaged("is empty");
    reader.set_where(fmt::format("metadata key {}", Quoted(key)));
    LH_ASSIGN(const uint32_t type, reader.Read<uint32_t>());
    LH_ASSIGN(GgufValue value, reader.ReadValue(type));
    if (!values.emplace(key, std::move(value)).second) return reader.Damaged("stands there twice");
    keys.emplace_back(key);
  }
  return {};
}

Status GgufFile::Impl::RefuseSplitFile() const {
  constexpr std::string_view kSplitCount = "split.count";
  if (Find(kSplitCount) == nullptr) return {};
  LH_ASSIGN(const int64_t n_parts, GetInt(kSplitCount));
  if (n_parts <= 1) return {};
  return Unsupported(
      fmt::format("{}: one of {} parts of a split model, which longheads reads as one file only; join "
                  "them with `llama-gguf-split --merge FIRST_PART WHOLE`",
                  name, n_parts));
}

Result<uint64_t> GgufFile::Impl::Alignment() const {
  constexpr std::string_view kKey = "general.alignment";
  if (Find(kKey) == nullptr) return kDefaultAlignment;
  LH_ASSIGN(const int64_t alignment, GetInt(kKey));
  if (alignment < kMinAlignment || alignment > kMaxAlignment || !std::has_single_bit(uint64_t(alignment))) {
    return InvalidInput(fmt::format("{}: general.alignment is {}; it must be a power of two from {} to {}",
                                    name, alignment, kMinAlignment, kMaxAlignment));
  }
  return static_cast<uint64_t>(alignment);
}

Status GgufFile::Impl::ReadTensors(HeaderReader& reader, uint64_t n_tensors) {
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    LH_ASSIGN(const TensorEntry entry, ReadTensorEntry(reader, i, name));
    if (!tensors.emplace(entry.name, TensorView()).second) return reader.Damaged("stands there twice");
    tensor_names.emplace_back(entry.name);
    entries.push_back(entry);
  }
  LH_ASSIGN(const uint64_t alignment, Alignment());
  const uint64_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  LH_TRY(PlaceTensors(entries, bytes, data_begin, alignment, name));
  for (const TensorEntry& entry : entries) tensors.find(entry.name)->second = entry.view;
  return {};
}

const GgufValue* GgufFile::Impl::Find(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

Result<const GgufValue*> GgufFile::Impl::Require(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value != nullptr) return value;
  return InvalidInput(fmt::format(
      "{}: the metadata key {} is missing; convert the model again with a current tool", name, Quoted(key)));
}

tl::unexpected<Error> GgufFile::Impl::WrongType(std::string_view key, std::string_view is,
                                                std::string_view wanted) const {
  return InvalidInput(
      fmt::format("{}: the metadata key {} is {}, not {}; convert the model again with a current tool", name,
                  Quoted(key), is, wanted));
}

template <typename T>
Result<const T*> GgufFile::Impl::Get(std::string_view key, std::string_view wanted) const {
  LH_ASSIGN(const GgufValue* const value, Require(key));
  if (const T* typed = std::get_if<T>(value)) return typed;
  return WrongType(key, TypeName(*value), wanted);
}

Result<int64_t> GgufFile::Impl::GetInt(std::string_view key) const {
  LH_ASSIGN(const GgufValue* const value, Require(key));
  if (const int64_t* number = std::get_if<int64_t>(value)) return *number;
  if (const uint64_t* number = std::get_if<uint64_t>(value)) {
    if (*number <= INT64_MAX) return static_cast<int64_t>(*number);
    return WrongType(key, fmt::to_string(*number), "a number below 2^63");
  }
  return WrongType(key, TypeName(*value), "an integer");
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  LH_ASSIGN(impl->mapping, MappedFile::Open(path));
  impl->bytes = impl->mapping.bytes();
  impl->name = path;
  LH_TRY(impl->Parse());
  return GgufFile(std::move(impl));
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string name) {
  auto impl = std::make_unique<Impl>();
  impl->bytes = bytes;
  impl->name = std::move(name);
  LH_TRY(impl->Parse());
  return GgufFile(std::move(impl));
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::name() const { return impl_->name; }
uint64_t GgufFile::file_bytes() const { return impl_->bytes.size(); }
std::span<const std::byte> GgufFile::bytes() const { return impl_->bytes; }
uint32_t GgufFile::version() const { return impl_->version; }
const std::vector<std::string>& GgufFile::keys() const { return impl_->keys; }
const std::vector<std::string>& GgufFile::tensor_names() const { return impl_->tensor_names; }
const GgufValue* GgufFile::Find(std::string_view key) const { return impl_->Find(key); }

const TensorView* GgufFile::FindTensor(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  return found == impl_->tensors.end() ? nullptr : &found->second;
}

Result<int64_t> GgufFile::GetInt(std::string_view key) const { return impl_->GetInt(key); }

Result<double> GgufFile::GetFloat(std::string_view key) const {
  LH_ASSIGN(const double* const value, impl_->Get<double>(key, "a float"));
  return *value;
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  LH_ASSIGN(const bool* const value, impl_->Get<bool>(key, "a bool"));
  return *value;
}

Result<std::string> GgufFile::GetString(std::string_view key) const {
  LH_ASSIGN(const std::string* const value, impl_->Get<std::string>(key, "a string"));
  return *value;
}

Result<const std::vector<std::string>*> GgufFile::GetStrings(std::string_view key) const {
  return impl_->Get<std::vector<std::string>>(key, "an array of strings");
}

Result<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const {
  LH_ASSIGN(const GgufValue* const value, impl_->Require(key));
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(value)) return *numbers;
  const auto* unsigned_numbers = std::get_if<std::vector<uint64_t>>(value);
  if (unsigned_numbers == nullptr) return impl_->WrongType(key, TypeName(*value), "an array of integers");
  std::vector<int64_t> numbers;
  numbers.reserve(unsigned_numbers->size());
  for (const uint64_t number : *unsigned_numbers) {
    if (number > INT64_MAX) return impl_->WrongType(key, fmt::to_string(number), "numbers below 2^63");
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

Result<std::vector<double>> GgufFile::GetFloats(std::string_view key) const {
  LH_ASSIGN(const auto* const values, impl_->Get<std::vector<double>>(key, "an array of floats"));
  return *values;
}

}  // namespace longheads
