#include "kv/sequence.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace longheads {
namespace {

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

void Store(const float* from, int64_t n, float* to, const VectorKernels&) { std::copy_n(from, n, to); }
void Store(const float* from, int64_t n, BFloat16* to, const VectorKernels& conversions) {
  conversions.to_bf16(from, n, to);
}

// Rows [n, head_dim] at `stride` into the page: K as rows, V down the columns.
template <typename T>
void WritePage(T* k_page, T* v_page, int64_t head_dim, int64_t at, int64_t n, const float* k,
               int64_t k_stride, const float* v, int64_t v_stride, const VectorKernels& conversions) {
  constexpr int64_t kTile = 16;  // numbers that are converted together on their way into a column
  for (int64_t i = 0; i < n; ++i)
    Store(k + i * k_stride, head_dim, k_page + (at + i) * head_dim, conversions);
  // A prompt's tokens lie side by side in a column of the page; a single token's numbers do in its row.
  T converted[kTile];
  float column[kTile];
  if (n == 1) {
    for (int64_t m = 0; m < head_dim; m += kTile) {
      const int64_t count = std::min(kTile, head_dim - m);
      Store(v + m, count, converted, conversions);
      for (int64_t b = 0; b < count; ++b) v_page[(m + b) * kPageTokens + at] = converted[b];
    }
    return;
  }
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t count = std::min(kTile, n - i);
    for (int64_t m = 0; m < head_dim; ++m) {
      for (int64_t b = 0; b < count; ++b) column[b] = v[(i + b) * v_stride + m];
      Store(column, count, v_page + m * kPageTokens + at + i, conversions);
    }
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
      WritePage(k_page, k_page + kPageTokens * d, d, at, here, k, k_stride, v, v_stride,
                pool_->conversions());
    } else {
      BFloat16* const k_page = reinterpret_cast<BFloat16*>(data);
      WritePage(k_page, k_page + kPageTokens * d, d, at, here, k, k_stride, v, v_stride,
                pool_->conversions());
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
  pool_->conversions().from_bf16(reinterpret_cast<const BFloat16*>(data), 2 * half, scratch);
  return {scratch, scratch + half};
}

std::optional<KvSequence::Halves> KvSequence::Bf16Page(int64_t layer, int64_t kv_head, int64_t index) const {
  if (geometry().type != KvType::kBF16) return std::nullopt;
  const auto* const k = reinterpret_cast<const BFloat16*>(page(layer, kv_head, index)->data.data());
  return Halves{k, k + kPageTokens * geometry().head_dim};
}

const float* KvSequence::ReadKeys(int64_t layer, int64_t kv_head, int64_t index, float* scratch) const {
  const std::byte* const data = page(layer, kv_head, index)->data.data();
  if (geometry().type == KvType::kF32) return reinterpret_cast<const float*>(data);
  pool_->conversions().from_bf16(reinterpret_cast<const BFloat16*>(data), kPageTokens * geometry().head_dim,
                                 scratch);
  return scratch;
}

void KvSequence::CopyKeys(int64_t layer, int64_t kv_head, int64_t token, int64_t n, float* k,
                          int64_t k_stride) const {
  const int64_t d = geometry().head_dim;
  for (int64_t j = token; j < token + n; ++j, k += k_stride) {
    const std::byte* const data = page(layer, kv_head, j / kPageTokens)->data.data();
    const int64_t at = j % kPageTokens * d;
    if (geometry().type == KvType::kF32) {
      std::copy_n(reinterpret_cast<const float*>(data) + at, d, k);
    } else {
      pool_->conversions().from_bf16(reinterpret_cast<const BFloat16*>(data) + at, d, k);
    }
  }
}

void KvSequence::Gather(int64_t layer, int64_t kv_head, std::span<const int32_t> tokens, float* k,
                        float* v) const {
  LH_CHECK(static_cast<int64_t>(tokens.size()) <= kPageTokens);
  const auto gather = [&](auto type) {
    using T = decltype(type);
    const int64_t d = geometry().head_dim;
    const int64_t n_tokens = static_cast<int64_t>(tokens.size());
    for (int64_t i = 0, n = 0; i < n_tokens; i += n) {
      const int64_t token = tokens[static_cast<std::size_t>(i)];
      const int64_t at = token % kPageTokens;
      // Neighbours in the text lie side by side in their page.
      n = 1;
      while (i + n < n_tokens && at + n < kPageTokens && tokens[static_cast<std::size_t>(i + n)] == token + n)
        ++n;
      const T* const data =
          reinterpret_cast<const T*>(page(layer, kv_head, token / kPageTokens)->data.data());
      Expand(data + at * d, n * d, k + i * d);
      const T* const values = data + kPageTokens * d + at;
      for (int64_t m = 0; m < d; ++m) Expand(values + m * kPageTokens, n, v + m * kPageTokens + i);
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
