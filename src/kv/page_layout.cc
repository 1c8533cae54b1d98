#include "kv/page_layout.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/check.h"

namespace longheads {
namespace {

// Numbers that are converted together on their way into a column of V.
constexpr int64_t kTile = 16;

float ToFloat(float value) { return value; }
float ToFloat(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// to[i] = from[i] for i in [0, n).
template <typename T>
void Expand(const T* from, int64_t n, float* to) {
  constexpr int64_t kBlock = 16;  // of a length that the compiler knows: no loop is left
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (int64_t b = 0; b < kBlock; ++b) to[i + b] = ToFloat(from[i + b]);
  }
  for (; i < n; ++i) to[i] = ToFloat(from[i]);
}

// float32 and bfloat16.
template <typename T>
class FloatLayout final : public PageLayout {
 public:
  FloatLayout(int64_t head_dim, const VectorKernels& conversions) : d_(head_dim), conversions_(conversions) {}

  void Write(std::byte* page, int64_t at, int64_t n, const float* k, int64_t k_stride, const float* v,
             int64_t v_stride) const override {
    T* const k_page = reinterpret_cast<T*>(page);
    T* const v_page = k_page + kPageTokens * d_;
    for (int64_t i = 0; i < n; ++i) Store(k + i * k_stride, d_, k_page + (at + i) * d_);
    // A prompt's tokens lie side by side in a column of the page; a single token's numbers do in its row.
    T converted[kTile];
    float column[kTile];
    if (n == 1) {
      for (int64_t m = 0; m < d_; m += kTile) {
        const int64_t count = std::min(kTile, d_ - m);
        Store(v + m, count, converted);
        for (int64_t b = 0; b < count; ++b) v_page[(m + b) * kPageTokens + at] = converted[b];
      }
      return;
    }
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t count = std::min(kTile, n - i);
      for (int64_t m = 0; m < d_; ++m) {
        for (int64_t b = 0; b < count; ++b) column[b] = v[(i + b) * v_stride + m];
        Store(column, count, v_page + m * kPageTokens + at + i);
      }
    }
  }

  Floats Read(const std::byte* page, float* scratch) const override {
    const float* const k = Load(page, 2 * kPageTokens * d_, scratch);
    return {k, k + kPageTokens * d_};
  }
  const float* ReadKeys(const std::byte* page, float* scratch) const override {
    return Load(page, kPageTokens * d_, scratch);
  }

  bool packs() const override {
    return std::is_same_v<T, BFloat16> && d_ % kPackedDims == 0 && d_ <= kMaxHeadDim;
  }
  bool Pack(const std::byte* page, PackedBf16Room packed) const override {
    return conversions_.pack_bf16(reinterpret_cast<const BFloat16*>(page), d_, packed);
  }
  void Unpack(PackedBf16 packed, std::byte* page) const override {
    conversions_.unpack_bf16(packed, d_, reinterpret_cast<BFloat16*>(page));
  }

  void CopyKeys(const std::byte* page, int64_t at, int64_t n, float* k, int64_t k_stride) const override {
    const T* const keys = reinterpret_cast<const T*>(page) + at * d_;
    for (int64_t i = 0; i < n; ++i) Expand(keys + i * d_, d_, k + i * k_stride);
  }

  void Gather(const std::byte* page, int64_t at, int64_t n, float* k, float* v) const override {
    const T* const data = reinterpret_cast<const T*>(page);
    Expand(data + at * d_, n * d_, k);
    const T* const values = data + kPageTokens * d_ + at;
    for (int64_t m = 0; m < d_; ++m) Expand(values + m * kPageTokens, n, v + m * kPageTokens);
  }

 private:
  void Store(const float* from, int64_t n, float* to) const { std::copy_n(from, n, to); }
  void Store(const float* from, int64_t n, BFloat16* to) const { conversions_.to_bf16(from, n, to); }

  const float* Load(const std::byte* page, int64_t n, float* scratch) const {
    if constexpr (std::is_same_v<T, float>) {
      return reinterpret_cast<const float*>(page);
    } else {
      conversions_.from_bf16(reinterpret_cast<const BFloat16*>(page), n, scratch);
      return scratch;
    }
  }

  int64_t d_;
  const VectorKernels& conversions_;
};

class Q8Layout final : public PageLayout {
 public:
  Q8Layout(int64_t head_dim, const VectorKernels& conversions)
      : d_(head_dim), places_(head_dim), conversions_(conversions) {
    LH_CHECK(head_dim <= kMaxDim);
  }

  void Write(std::byte* page, int64_t at, int64_t n, const float* k, int64_t k_stride, const float* v,
             int64_t v_stride) const override {
    int8_t* const k_page = reinterpret_cast<int8_t*>(page);
    int8_t* const v_page = k_page + places_.v;
    float* const k_scale = reinterpret_cast<float*>(page + places_.k_scale) + at;
    float* const v_scale = reinterpret_cast<float*>(page + places_.v_scale) + at;
    int8_t rows[kTile][kMaxDim];
    for (int64_t i = 0; i < n; ++i)
      k_scale[i] = conversions_.to_q8(k + i * k_stride, d_, k_page + (at + i) * d_);
    for (int64_t begin = 0; begin < n; begin += kTile) {
      const int64_t count = std::min(kTile, n - begin);
      for (int64_t i = 0; i < count; ++i) {
        v_scale[begin + i] = conversions_.to_q8(v + (begin + i) * v_stride, d_, rows[i]);
      }
      for (int64_t m = 0; m < d_; ++m) {
        int8_t* const column = v_page + m * kPageTokens + at + begin;
        for (int64_t i = 0; i < count; ++i) column[i] = rows[i][m];
      }
    }
  }

  Floats Read(const std::byte* page, float* scratch) const override {
    float* const v = scratch + kPageTokens * d_;
    const int8_t* const values = reinterpret_cast<const int8_t*>(page) + places_.v;
    for (int64_t m = 0; m < d_; ++m) {
      conversions_.from_q8_each(values + m * kPageTokens, VScale(page), kPageTokens, v + m * kPageTokens);
    }
    return {ReadKeys(page, scratch), v};
  }

  const float* ReadKeys(const std::byte* page, float* scratch) const override {
    CopyKeys(page, 0, kPageTokens, scratch, d_);
    return scratch;
  }

  void CopyKeys(const std::byte* page, int64_t at, int64_t n, float* k, int64_t k_stride) const override {
    const int8_t* const keys = reinterpret_cast<const int8_t*>(page);
    for (int64_t i = 0; i < n; ++i) {
      conversions_.from_q8(keys + (at + i) * d_, KScale(page)[at + i], d_, k + i * k_stride);
    }
  }

  void Gather(const std::byte* page, int64_t at, int64_t n, float* k, float* v) const override {
    CopyKeys(page, at, n, k, d_);
    const int8_t* const values = reinterpret_cast<const int8_t*>(page) + places_.v + at;
    for (int64_t m = 0; m < d_; ++m) {
      conversions_.from_q8_each(values + m * kPageTokens, VScale(page) + at, n, v + m * kPageTokens);
    }
  }

 private:
  static constexpr int64_t kMaxDim = 1024;

  const float* KScale(const std::byte* page) const {
    return reinterpret_cast<const float*>(page + places_.k_scale);
  }
  const float* VScale(const std::byte* page) const {
    return reinterpret_cast<const float*>(page + places_.v_scale);
  }

  int64_t d_;
  Q8Places places_;
  const VectorKernels& conversions_;
};

}  // namespace

bool PageLayout::Pack(const std::byte*, PackedBf16Room) const { return false; }

void PageLayout::Unpack(PackedBf16, std::byte*) const { LH_CHECK(packs()); }

const char* NameOf(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kBF16:
      return "bf16";
    case KvType::kQ8:
      return "q8";
  }
  return "?";
}

int64_t RowBytes(KvType type, int64_t head_dim) {
  switch (type) {
    case KvType::kF32:
      return 4 * head_dim;
    case KvType::kBF16:
      return 2 * head_dim;
    case KvType::kQ8:
      return head_dim + static_cast<int64_t>(sizeof(float));
  }
  return 0;
}

std::unique_ptr<const PageLayout> MakePageLayout(KvType type, int64_t head_dim,
                                                 const VectorKernels& conversions) {
  switch (type) {
    case KvType::kF32:
      return std::make_unique<FloatLayout<float>>(head_dim, conversions);
    case KvType::kBF16:
      return std::make_unique<FloatLayout<BFloat16>>(head_dim, conversions);
    case KvType::kQ8:
      return std::make_unique<Q8Layout>(head_dim, conversions);
  }
  return nullptr;
}

}  // namespace longheads
