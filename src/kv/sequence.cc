#include "kv/sequence.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"

namespace longheads {
namespace {

// For the list of a call to KvPool::ReadAhead, which must have all of it: those of a token allocate nothing.
std::vector<KvPage*>& EmptyList() {
  static thread_local std::vector<KvPage*> list;
  list.clear();
  return list;
}

}  // namespace

KvSequence::KvSequence(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {
  tables_.resize(static_cast<std::size_t>(geometry().n_layers * geometry().n_kv_heads));
  remembered_.resize(tables_.size());
  nearly_.resize(tables_.size());
}

KvSequence::~KvSequence() { SetKept(false, kept_from_, kept_until_); }

void KvSequence::Reserve(int64_t n, ThreadPool* threads) {
  const std::size_t n_pages = static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens);
  const int64_t open = size_ / kPageTokens;  // the page that the next token goes to
  for (auto& table : tables_) {
    if (size_ % kPageTokens != 0) {
      std::shared_ptr<KvPage>& page = table[static_cast<std::size_t>(open)];
      if (page.use_count() > 1) {  // shared with a fork: from here on each has its own
        std::shared_ptr<KvPage> own = pool_->Acquire();
        const PinnedPage from = pool_->Read(*page);
        const PinnedPage to = pool_->Write(*own, /*fills=*/false);
        std::memcpy(to.data(), from.data(), static_cast<std::size_t>(geometry().PageBytes()));
        pool_->Keep(*own, true);  // the newest: in the other's place
        pool_->Keep(*page, false);
        page = std::move(own);
      } else {
        pool_->WillWrite(*page);
      }
    }
  }
  std::size_t n_new = 0;
  for (const auto& table : tables_) n_new += n_pages - std::min(n_pages, table.size());
  if (n_new == 0) return;
  auto pages = pool_->Acquire(static_cast<int64_t>(n_new), threads);
  auto next = pages.begin();
  for (auto& table : tables_) {
    while (table.size() < n_pages) table.push_back(std::move(*next++));
  }
}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  KvSequence old(std::move(*this));  // lets go of its pages
  pool_ = std::move(other.pool_);
  tables_ = std::move(other.tables_);
  size_ = other.size_;
  n_adopted_ = other.n_adopted_;
  kept_from_ = other.kept_from_;
  kept_until_ = other.kept_until_;
  remembered_ = std::move(other.remembered_);
  nearly_ = std::move(other.nearly_);
  return *this;
}

void KvSequence::Commit(int64_t n) {
  size_ = n;
  KeepEnds(n);
}

// Of n tokens. Every method looks at the first and at the newest, whatever it chooses between them.
void KvSequence::KeepEnds(int64_t n) {
  if (!on_disk()) return;
  const int64_t until = (n + kPageTokens - 1) / kPageTokens;
  const int64_t from = std::max<int64_t>(0, until - kNewestPages);
  if (from == kept_from_ && until == kept_until_) return;
  SetKept(true, from, until);
  SetKept(false, kept_from_, kept_until_);
  kept_from_ = from;
  kept_until_ = until;
}

void KvSequence::SetKept(bool keep, int64_t from, int64_t until) const {
  for (const auto& table : tables_) {  // none of them where the sequence was moved from
    if (from > 0) pool_->Keep(*table.front(), keep);
    for (int64_t page = from; page < until; ++page) pool_->Keep(*table[static_cast<std::size_t>(page)], keep);
  }
}

void KvSequence::Write(int64_t layer, int64_t kv_head, int64_t token, int64_t n, const float* k,
                       int64_t k_stride, const float* v, int64_t v_stride) {
  while (n > 0) {
    const int64_t at = token % kPageTokens;
    const int64_t here = std::min(n, kPageTokens - at);
    const PinnedPage written =
        pool_->Write(*page(layer, kv_head, token / kPageTokens), /*fills=*/at + here == kPageTokens);
    pool_->layout().Write(written.data(), at, here, k, k_stride, v, v_stride);
    token += here;
    n -= here;
    k += here * k_stride;
    v += here * v_stride;
  }
}

PinnedPage KvSequence::Stored(int64_t layer, int64_t kv_head, int64_t index) const {
  return pool_->Read(*page(layer, kv_head, index));
}

PinnedPage KvSequence::StoredForNow(int64_t layer, int64_t kv_head, int64_t index) const {
  KvPage& stored = *page(layer, kv_head, index);
  if (!pool_->packs()) return pool_->Read(stored);
  thread_local AlignedMemory scratch;
  thread_local int64_t scratch_bytes = 0;
  if (scratch_bytes < geometry().PageStride()) {
    scratch_bytes = 0;
    scratch = AllocateAligned(static_cast<std::size_t>(geometry().PageStride()), kCacheLine);
    scratch_bytes = geometry().PageStride();
  }
  return pool_->Read(stored, scratch.get());
}

const std::byte* KvSequence::Peek(int64_t layer, int64_t kv_head, int64_t token) const {
  const int64_t number = geometry().type == KvType::kQ8 ? 1 : RowBytes(geometry().type, 1);
  return pool_->Peek(*page(layer, kv_head, token / kPageTokens),
                     token % kPageTokens * geometry().head_dim * number);
}

PageLayout::Floats KvSequence::Read(int64_t layer, int64_t kv_head, int64_t index, float* scratch) const {
  const PinnedPage stored = StoredForNow(layer, kv_head, index);
  const PageLayout::Floats floats = pool_->layout().Read(stored.data(), scratch);
  if (floats.k == scratch || !on_disk()) return floats;
  const int64_t half = kPageTokens * geometry().head_dim;
  std::copy_n(floats.k, half, scratch);
  std::copy_n(floats.v, half, scratch + half);
  return {scratch, scratch + half};
}

const float* KvSequence::ReadKeys(int64_t layer, int64_t kv_head, int64_t index, float* scratch) const {
  const PinnedPage stored = StoredForNow(layer, kv_head, index);
  const float* const k = pool_->layout().ReadKeys(stored.data(), scratch);
  if (k == scratch || !on_disk()) return k;
  std::copy_n(k, kPageTokens * geometry().head_dim, scratch);
  return scratch;
}

void KvSequence::CopyKeys(int64_t layer, int64_t kv_head, int64_t token, int64_t n, float* k,
                          int64_t k_stride) const {
  while (n > 0) {
    const int64_t at = token % kPageTokens;
    const int64_t here = std::min(n, kPageTokens - at);
    pool_->layout().CopyKeys(StoredForNow(layer, kv_head, token / kPageTokens).data(), at, here, k, k_stride);
    token += here;
    n -= here;
    k += here * k_stride;
  }
}

void KvSequence::Gather(int64_t layer, int64_t kv_head, std::span<const int32_t> tokens, float* k,
                        float* v) const {
  LH_CHECK(static_cast<int64_t>(tokens.size()) <= kPageTokens);
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  PinnedPage stored;  // of neighbours' page
  int64_t index = -1;
  for (int64_t i = 0, n = 0; i < n_tokens; i += n) {
    const int64_t token = tokens[static_cast<std::size_t>(i)];
    const int64_t at = token % kPageTokens;
    // Neighbours in the text lie side by side in their page.
    n = 1;
    while (i + n < n_tokens && at + n < kPageTokens && tokens[static_cast<std::size_t>(i + n)] == token + n)
      ++n;
    if (index != token / kPageTokens) {
      index = token / kPageTokens;
      stored = StoredForNow(layer, kv_head, index);
    }
    pool_->layout().Gather(stored.data(), at, n, k + i * geometry().head_dim, v + i);
  }
}

void KvSequence::WillRead(int64_t layer, int64_t kv_head, std::span<const int64_t> pages, For reader,
                          int64_t n_texts) const {
  if (!on_disk()) return;
  std::vector<KvPage*>& wanted = EmptyList();
  for (const int64_t index : pages) wanted.push_back(page(layer, kv_head, index).get());
  if (reader == For::kPrompt) return pool_->ReadAhead(wanted, KvPool::Asked::kForCertain);
  AddRemembered(layer, kv_head, remembered_, wanted);
  const std::span<KvPage* const> all = wanted;
  pool_->ReadAgain(all.first(pages.size()), n_texts, all.subspan(pages.size()));
  pool_->EndKeeping(TableOf(layer, kv_head));
}

void KvSequence::Remember(int64_t layer, int64_t kv_head, std::span<const int64_t> pages,
                          std::span<const int64_t> nearly) const {
  const std::size_t at = TableOf(layer, kv_head);
  remembered_[at].assign(pages.begin(), pages.end());
  nearly_[at].assign(nearly.begin(), nearly.end());
}

void KvSequence::KeepForToken(int64_t layer, int64_t kv_head, std::span<const int64_t> pages) const {
  const std::size_t at = TableOf(layer, kv_head);
  const auto n_pages = static_cast<int64_t>(tables_[at].size());
  std::vector<KvPage*>& wanted = EmptyList();
  for (const int64_t index : pages) {
    const bool kept_anyway = index == 0 || index >= n_pages - kNewestPages;  // once the block is complete
    if (!kept_anyway) wanted.push_back(page(layer, kv_head, index).get());
  }
  // A prompt's blocks read the pages of a layer several times over, beside those that they write.
  pool_->KeepForToken(at, wanted, 2 * geometry().n_kv_heads * n_pages);
}

void KvSequence::AddRemembered(int64_t layer, int64_t kv_head,
                               const std::vector<std::vector<int64_t>>& tables,
                               std::vector<KvPage*>& pages) const {
  const int64_t n_pages = (size_ + kPageTokens - 1) / kPageTokens;
  for (const int64_t index : tables[TableOf(layer, kv_head)]) {
    if (index < n_pages) pages.push_back(page(layer, kv_head, index).get());  // the text may have been cut
  }
}

void KvSequence::Expect(int64_t layer) const {
  if (!on_disk()) return;
  const auto send = [&](const std::vector<std::vector<int64_t>>& tables, KvPool::Asked asked) {
    std::vector<KvPage*>& wanted = EmptyList();
    for (int64_t head = 0; head < geometry().n_kv_heads; ++head) AddRemembered(layer, head, tables, wanted);
    pool_->ReadAhead(wanted, asked);
  };
  send(remembered_, KvPool::Asked::kLikely);
  send(nearly_, KvPool::Asked::kPerhaps);
}

void KvSequence::Adopt(int64_t n, std::span<const KvPool::Place> pages) {
  const std::size_t n_pages = static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens);
  LH_CHECK(size_ == 0 && pages.size() == tables_.size() * n_pages);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].clear();
    tables_[t].reserve(n_pages);
    for (const KvPool::Place& place : pages.subspan(t * n_pages, n_pages)) {
      tables_[t].push_back(pool_->Adopt(place.file, place.offset, place.checksum));
    }
  }
  n_adopted_ = n / kPageTokens * static_cast<int64_t>(tables_.size());
  Commit(n);
}

KvSequence KvSequence::Fork() const {
  KvSequence fork(pool_);
  // Pages reserved ahead of the tokens stay with this sequence: two writers may not share them.
  const auto n_pages = static_cast<std::ptrdiff_t>((size_ + kPageTokens - 1) / kPageTokens);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    fork.tables_[i].assign(tables_[i].begin(), tables_[i].begin() + n_pages);
  }
  fork.size_ = size_;
  fork.n_adopted_ = n_adopted_;
  fork.KeepEnds(size_);
  return fork;
}

void KvSequence::Truncate(int64_t n) {
  LH_CHECK(n >= 0 && n <= size_);
  KeepEnds(n);
  size_ = n;
  n_adopted_ = std::min(n_adopted_, n / kPageTokens * static_cast<int64_t>(tables_.size()));
  const std::size_t n_pages = static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens);
  for (auto& table : tables_) table.resize(std::min(table.size(), n_pages));
}

}  // namespace longheads
