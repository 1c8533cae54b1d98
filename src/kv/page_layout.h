// How the numbers of a page lie, for each type that keys and values are kept in. Keys and values come and go
// as float32; only here and in the kernels that read pages directly is it known what they are in between.
//
// f32, bf16: K [kPageTokens, head_dim] row-major, then V transposed [head_dim, kPageTokens].
// q8:        the same of eight-bit integers, then K's scales [kPageTokens] and V's [kPageTokens], float32:
// one for
//            each token. A number is its integer, -127 .. 127, times the scale, which is the row's largest
//            magnitude / 127. A row that is not finite comes back as NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/packed_bf16.h"
#include "kernels/vector_ops.h"

namespace longheads {

inline constexpr int64_t kPageTokens = 256;

enum class KvType : uint8_t { kF32, kBF16, kQ8 };

// "f32", "bf16", "q8".
const char* NameOf(KvType type);

// Bytes of a token's key or value row.
int64_t RowBytes(KvType type, int64_t head_dim);

// The places in a q8 page.
struct Q8Places {
  explicit Q8Places(int64_t head_dim)
      : v(kPageTokens * head_dim), k_scale(2 * v), v_scale(k_scale + 4 * kPageTokens) {}
  int64_t v;  // bytes from the page's beginning; K is at 0
  int64_t k_scale;
  int64_t v_scale;
};

class PageLayout {
 public:
  virtual ~PageLayout() = default;

  // Rows [n, head_dim] of keys and values become tokens [at, at + n) of the page. Row i of k is at k + i *
  // k_stride.
  virtual void Write(std::byte* page, int64_t at, int64_t n, const float* k, int64_t k_stride, const float* v,
                     int64_t v_stride) const = 0;

  // K [kPageTokens, head_dim] and V [head_dim, kPageTokens] in float32: the page itself where it is, else in
  // `scratch`, 2 * kPageTokens * head_dim floats.
  struct Floats {
    const float* k;
    const float* v;
  };
  virtual Floats Read(const std::byte* page, float* scratch) const = 0;
  // K alone; `scratch` is half as large.
  virtual const float* ReadKeys(const std::byte* page, float* scratch) const = 0;

  // Whether Pack and Unpack may be called: bfloat16 can be packed.
  virtual bool packs() const { return false; }
  // kernels/packed_bf16.h: a page into fewer bytes, without loss; false where it cannot be.
  virtual bool Pack(const std::byte* page, PackedBf16Room packed) const;
  virtual void Unpack(PackedBf16 packed, std::byte* page) const;

  // The keys of tokens [at, at + n): rows `k_stride` apart.
  virtual void CopyKeys(const std::byte* page, int64_t at, int64_t n, float* k, int64_t k_stride) const = 0;
  // K and V of tokens [at, at + n): rows [n, head_dim] of k, and n columns of v [head_dim, kPageTokens].
  virtual void Gather(const std::byte* page, int64_t at, int64_t n, float* k, float* v) const = 0;
};

// `conversions` must outlive it.
std::unique_ptr<const PageLayout> MakePageLayout(KvType type, int64_t head_dim,
                                                 const VectorKernels& conversions);

}  // namespace longheads
