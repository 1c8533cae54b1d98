#include "kv/sequence.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/vector_ops.h"

namespace longheads {
namespace {

const VectorKernels& Vectors() {
  static const VectorKernels& kernels =
      *ChooseImplementation(VectorImplementations(), "auto", "vector work")->table;
  return kernels;
}

float ToFloat(float value) { return value; }
float ToFloat(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

void Store(float value, float* to) { *to = value; }
void Store(float value, BFloat16* to) { Vectors().to_bf16(&value, 1, to); }

// rows [n, head_dim] at `stride` into the page: K as rows, V down the columns.
template <typename T>
void WritePage(T* k_page, T* v_page, int64_t head_dim, int64_t at, int64_t n, const float* k,
               int64_t k_stride, const float* v, int64_t v_stride) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t m = 0; m < head_dim; ++m) Store(k[i * k_stride + m], k_page + (at + i) * head_dim + m);
  }
  for (int64_t m = 0; m < head_dim; ++m) {
    for (int64_t i = 0; i < n; ++i) Store(v[i * v_stride + m], v_page + m * kPageTokens + at + i);
  }
}

}  // namespace

KvSequence::KvSequence(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {
  tables_.resize(static_cast<std::size_t>(geometry().n_layers * geometry().n_kv_heads));
}

void KvSequence::Reserve(int64_t n) {
  const std::size_t n_pages = static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens);
  const int64_t open = size_ / kPageTokens;  // the page that the next token goes to
  for (auto& table : tables_) {
    if (size_ % kPageTokens != 0) {
      std::shared_ptr<KvPage>& page = table[static_cast<std::size_t>(open)];
      if (page.use_count() > 1) {  // shared with a fork: from here on each has its own
        std::shared_ptr<KvPage> own = pool_->Acquire();
        std::memcpy(own->data.data(), page->data.data(), static_cast<std::size_t>(page->data.size()));
        page = std::move(own);
      }
    }
    while (table.size() < n_pages) table.push_back(pool_->Acquire());
  }
}

void KvSequence::Write(int64_t layer, int64_t kv_head, int64_t token, int64_t n, const float* k,
                       int64_t k_stride, const float* v, int64_t v_stride) {
  const int64_t d = geometry().head_dim;
  while (n > 0) {
    const int64_t at = token % kPageTokens;
    const int64_t here = std::min(n, kPageTokens - at);
    std::byte* const data = page(layer, kv_head, token / kPageTokens)->data.data();
    if (geometry().type == KvType::kF32) {
      float* const k_page = reinterpret_cast<float*>(data);
      WritePage(k_page, k_page + kPageTokens * d, d, at, here, k, k_stride, v, v_stride);
    } else {
      BFloat16* const k_page = reinterpret_cast<BFloat16*>(data);
      WritePage(k_page, k_page + kPageTokens * d, d, at, here, k, k_stride, v, v_stride);
    }
    token += here;
    n -= here;
    k += here * k_stride;
    v += here * v_stride;
  }
}

KvSequence::Floats KvSequence::Read(int64_t layer, int64_t kv_head, int64_t index, float* scratch) const {
  const std::byte* const data = page(layer, kv_head, index)->data.data();
  const int64_t half = kPageTokens * geometry().head_dim;
  if (geometry().type == KvType::kF32) {
    const float* const k = reinterpret_cast<const float*>(data);
    return {k, k + half};
  }
  Vectors().from_bf16(reinterpret_cast<const BFloat16*>(data), 2 * half, scratch);
  return {scratch, scratch + half};
}

void KvSequence::Gather(int64_t layer, int64_t kv_head, std::span<const int32_t> tokens, float* k,
                        float* v) const {
  LH_CHECK(static_cast<int64_t>(tokens.size()) <= kPageTokens);
  const auto gather = [&](auto type) {
    using T = decltype(type);
    const int64_t d = geometry().head_dim;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const int64_t at = tokens[i] % kPageTokens;
      const T* const data =
          reinterpret_cast<const T*>(page(layer, kv_head, tokens[i] / kPageTokens)->data.data());
      float* const key = k + static_cast<int64_t>(i) * d;
      for (int64_t m = 0; m < d; ++m) key[m] = ToFloat(data[at * d + m]);
      const T* const value = data + kPageTokens * d + at;
      for (int64_t m = 0; m < d; ++m)
        v[m * kPageTokens + static_cast<int64_t>(i)] = ToFloat(value[m * kPageTokens]);
    }
  };
  if (geometry().type == KvType::kF32) {
    gather(float{});
  } else {
    gather(BFloat16{});
  }
}

KvSequence KvSequence::Fork() const {
  KvSequence fork(pool_);
  // Pages reserved ahead of the tokens stay with this sequence: two writers may not share them.
  const auto n_pages = static_cast<std::ptrdiff_t>((size_ + kPageTokens - 1) / kPageTokens);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    fork.tables_[i].assign(tables_[i].begin(), tables_[i].begin() + n_pages);
  }
  fork.size_ = size_;
  return fork;
}

void KvSequence::Truncate(int64_t n) {
  LH_CHECK(n >= 0 && n <= size_);
  size_ = n;
  const std::size_t n_pages = static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens);
  for (auto& table : tables_) table.resize(std::min(table.size(), n_pages));
}

}  // namespace longheads
