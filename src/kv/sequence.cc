#include "kv/sequence.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace longheads {

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
  while (n > 0) {
    const int64_t at = token % kPageTokens;
    const int64_t here = std::min(n, kPageTokens - at);
    pool_->layout().Write(page(layer, kv_head, token / kPageTokens)->data.data(), at, here, k, k_stride, v,
                          v_stride);
    token += here;
    n -= here;
    k += here * k_stride;
    v += here * v_stride;
  }
}

const std::byte* KvSequence::Stored(int64_t layer, int64_t kv_head, int64_t index) const {
  return page(layer, kv_head, index)->data.data();
}

PageLayout::Floats KvSequence::Read(int64_t layer, int64_t kv_head, int64_t index, float* scratch) const {
  return pool_->layout().Read(Stored(layer, kv_head, index), scratch);
}

const float* KvSequence::ReadKeys(int64_t layer, int64_t kv_head, int64_t index, float* scratch) const {
  return pool_->layout().ReadKeys(Stored(layer, kv_head, index), scratch);
}

void KvSequence::CopyKeys(int64_t layer, int64_t kv_head, int64_t token, int64_t n, float* k,
                          int64_t k_stride) const {
  while (n > 0) {
    const int64_t at = token % kPageTokens;
    const int64_t here = std::min(n, kPageTokens - at);
    pool_->layout().CopyKeys(Stored(layer, kv_head, token / kPageTokens), at, here, k, k_stride);
    token += here;
    n -= here;
    k += here * k_stride;
  }
}

void KvSequence::Gather(int64_t layer, int64_t kv_head, std::span<const int32_t> tokens, float* k,
                        float* v) const {
  LH_CHECK(static_cast<int64_t>(tokens.size()) <= kPageTokens);
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  for (int64_t i = 0, n = 0; i < n_tokens; i += n) {
    const int64_t token = tokens[static_cast<std::size_t>(i)];
    const int64_t at = token % kPageTokens;
    // Neighbours in the text lie side by side in their page.
    n = 1;
    while (i + n < n_tokens && at + n < kPageTokens && tokens[static_cast<std::size_t>(i + n)] == token + n)
      ++n;
    pool_->layout().Gather(Stored(layer, kv_head, token / kPageTokens), at, n, k + i * geometry().head_dim,
                           v + i);
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
