#include "tests/support/gguf_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace longheads {
namespace {

using Bytes = std::vector<std::byte>;

void AppendBytes(Bytes& bytes, const void* source, std::size_t size) {
  const std::size_t before = bytes.size();
  bytes.resize(before + size);
  if (size != 0) std::memcpy(bytes.data() + before, source, size);
}

template <typename T>
void Append(Bytes& bytes, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  AppendBytes(bytes, &value, sizeof(T));
}

void Append(Bytes& bytes, const std::string& text) {
  Append(bytes, static_cast<uint64_t>(text.size()));
  AppendBytes(bytes, text.data(), text.size());
}

void AppendValue(Bytes& bytes, bool value) { Append(bytes, static_cast<uint8_t>(value)); }
template <typename T>
void AppendValue(Bytes& bytes, const T& value) {
  Append(bytes, value);
}

template <typename T>
constexpr GgufType TypeOf() {
  if constexpr (std::is_same_v<T, bool>) return GgufType::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::kUint8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::kInt8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::kUint16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::kInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::kUint32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::kInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::kUint64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::kInt64;
  if constexpr (std::is_same_v<T, float>) return GgufType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return GgufType::kFloat64;
  if constexpr (std::is_same_v<T, std::string>) return GgufType::kString;
}

uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0f) return sign | 0x7c00;  // half a step above the largest finite value
  // Below 2^-14 the step stays 2^-24; above, it is the exponent's own. Both scalings are exact.
  const int exponent = std::max(magnitude == 0 ? -14 : std::ilogb(magnitude), -14);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A normal number has steps in [1024, 2048]; the carry of 2048 goes into the exponent by addition.
  return static_cast<uint16_t>(sign + (static_cast<uint32_t>(exponent + 14) << 10) + steps);
}

float FromFloat16(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const auto mantissa = static_cast<float>(half & 0x3ff);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0f + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

int Level(float value, float scale, int least, int most) {
  if (scale == 0) return std::clamp(0, least, most);
  return std::clamp(static_cast<int>(std::lround(value / scale)), least, most);
}

// One block of 32 values around a scale (Q4_0, Q5_0: half = 8, 16) or above a minimum (Q4_1, Q5_1).
// ggml's layout: scale, minimum, the fifth bits as one uint32, then the low four bits, element j beside j
// + 16.
void AppendPackedBlock(Bytes& bytes, const float* x, int bits, bool with_minimum) {
  constexpr int kBlock = 32;
  const int levels = 1 << bits;
  int q[kBlock];
  const auto [low, high] = std::minmax_element(x, x + kBlock);
  if (with_minimum) {
    const uint16_t scale = ToFloat16((*high - *low) / static_cast<float>(levels - 1));
    const uint16_t minimum = ToFloat16(*low);
    for (int i = 0; i < kBlock; ++i) {
      q[i] = Level(x[i] - FromFloat16(minimum), FromFloat16(scale), 0, levels - 1);
    }
    Append(bytes, scale);
    Append(bytes, minimum);
  } else {
    const int half = levels / 2;
    const float largest = -*low > *high ? *low : *high;
    const uint16_t scale = ToFloat16(largest / static_cast<float>(-half));
    for (int i = 0; i < kBlock; ++i) q[i] = Level(x[i], FromFloat16(scale), -half, half - 1) + half;
    Append(bytes, scale);
  }
  if (bits == 5) {
    uint32_t fifth = 0;
    for (int i = 0; i < kBlock; ++i) fifth |= static_cast<uint32_t>(q[i] >> 4) << i;
    Append(bytes, fifth);
  }
  for (int i = 0; i < kBlock / 2; ++i) {
    Append(bytes, static_cast<uint8_t>((q[i] & 15) | (q[i + kBlock / 2] & 15) << 4));
  }
}

void AppendQ8Block(Bytes& bytes, const float* x) {
  constexpr int kBlock = 32;
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  const uint16_t scale = ToFloat16(largest / 127);
  Append(bytes, scale);
  for (int i = 0; i < kBlock; ++i) {
    Append(bytes, static_cast<int8_t>(Level(x[i], FromFloat16(scale), -127, 127)));
  }
}

void Pad(Bytes& bytes, uint64_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
}

}  // namespace

uint32_t GgmlTypeNumber(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
  }
  LH_CHECK(false);
}

Bytes EncodeTensor(DType type, std::span<const float> values) {
  const auto block = static_cast<std::size_t>(Info(type).block);
  LH_CHECK(values.size() % block == 0);
  Bytes bytes;
  for (std::size_t i = 0; i < values.size(); i += block) {
    const float* const x = values.data() + i;
    switch (type) {
      case DType::kF32:
        Append(bytes, *x);
        break;
      case DType::kF16:
        Append(bytes, ToFloat16(*x));
        break;
      case DType::kBF16:
        Append(bytes, ToBFloat16(*x));
        break;
      case DType::kQ4_0:
        AppendPackedBlock(bytes, x, 4, /*with_minimum=*/false);
        break;
      case DType::kQ4_1:
        AppendPackedBlock(bytes, x, 4, /*with_minimum=*/true);
        break;
      case DType::kQ5_0:
        AppendPackedBlock(bytes, x, 5, /*with_minimum=*/false);
        break;
      case DType::kQ5_1:
        AppendPackedBlock(bytes, x, 5, /*with_minimum=*/true);
        break;
      case DType::kQ8_0:
        AppendQ8Block(bytes, x);
        break;
      case DType::kQ4_K:
      case DType::kQ5_K:
      case DType::kQ6_K:
        LH_CHECK(!"the K types have no quantiser here: give their bytes");
    }
  }
  return bytes;
}

template <typename T>
GgufBuilder& GgufBuilder::Set(std::string key, T value) {
  Bytes bytes;
  AppendValue(bytes, value);
  return SetRaw(std::move(key), static_cast<uint32_t>(TypeOf<T>()), std::move(bytes));
}

template <typename T>
GgufBuilder& GgufBuilder::Set(std::string key, const std::vector<T>& values) {
  Bytes bytes;
  Append(bytes, static_cast<uint32_t>(TypeOf<T>()));
  Append(bytes, static_cast<uint64_t>(values.size()));
  for (const auto& value : values) AppendValue(bytes, value);
  return SetRaw(std::move(key), static_cast<uint32_t>(GgufType::kArray), std::move(bytes));
}

#define LH_INSTANTIATE(T)                                     \
  template GgufBuilder& GgufBuilder::Set(std::string key, T); \
  template GgufBuilder& GgufBuilder::Set(std::string key, const std::vector<T>&);
LH_INSTANTIATE(bool)
LH_INSTANTIATE(uint8_t)
LH_INSTANTIATE(int8_t)
LH_INSTANTIATE(uint16_t)
LH_INSTANTIATE(int16_t)
LH_INSTANTIATE(uint32_t)
LH_INSTANTIATE(int32_t)
LH_INSTANTIATE(uint64_t)
LH_INSTANTIATE(int64_t)
LH_INSTANTIATE(float)
LH_INSTANTIATE(double)
LH_INSTANTIATE(std::string)
#undef LH_INSTANTIATE

GgufBuilder& GgufBuilder::SetRaw(std::string key, uint32_t type, Bytes bytes) {
  metadata_.push_back({std::move(key), type, std::move(bytes)});
  return *this;
}

GgufBuilder& GgufBuilder::Tensor(std::string name, DType type, std::vector<int64_t> shape, Bytes bytes) {
  tensors_.push_back({std::move(name), type, std::move(shape), std::move(bytes), {}});
  return *this;
}

GgufBuilder& GgufBuilder::Lie(TensorLie lie) {
  LH_CHECK(!tensors_.empty());
  tensors_.back().lie = std::move(lie);
  return *this;
}

Bytes GgufBuilder::Build() const {
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  Bytes bytes;
  Append(bytes, magic.value_or(kMagic));
  Append(bytes, version);
  Append(bytes, tensor_count.value_or(tensors_.size()));
  Append(bytes, metadata_count.value_or(metadata_.size()));
  for (const Entry& entry : metadata_) {
    Append(bytes, entry.key);
    Append(bytes, entry.type);
    bytes.insert(bytes.end(), entry.bytes.begin(), entry.bytes.end());
  }
  Bytes data;
  for (const TensorEntry& tensor : tensors_) {
    Pad(data, alignment);
    const TensorLie& lie = tensor.lie;
    const std::vector<uint64_t> dims =
        lie.dims.value_or(std::vector<uint64_t>(tensor.shape.rbegin(), tensor.shape.rend()));
    Append(bytes, tensor.name);
    Append(bytes, lie.n_dims.value_or(static_cast<uint32_t>(dims.size())));
    for (const uint64_t dim : dims) Append(bytes, dim);
    Append(bytes, lie.type.value_or(GgmlTypeNumber(tensor.type)));
    Append(bytes, lie.offset.value_or(data.size()));
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  if (!tensors_.empty()) Pad(bytes, alignment);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

bool GgufBuilder::Write(const std::string& path) const {
  const Bytes bytes = Build();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return static_cast<bool>(file.flush());
}

}  // namespace longheads
