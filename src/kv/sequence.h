// The keys and values of one sequence: page tables over a shared pool, with cheap Fork and Truncate. The
// layout of a page is known here and to the kernels; a reader asks for float32 and need not know.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/pool.h"

namespace longheads {

class KvSequence {
 public:
  explicit KvSequence(std::shared_ptr<KvPool> pool);
  KvSequence(KvSequence&&) = default;
  KvSequence& operator=(KvSequence&& other) noexcept;
  ~KvSequence();

  const KvGeometry& geometry() const { return pool_->geometry(); }
  // Tokens that every layer holds.
  int64_t size() const { return size_; }

  // Makes room for tokens [size(), n): pages exist and are this sequence's own. Throws std::bad_alloc; then
  // nothing changed that a reader could see. `threads`, where there are any, make the memory.
  void Reserve(int64_t n, ThreadPool* threads = nullptr);

  // Writes n tokens from `token` on, for one layer and KV head, into reserved room. Row i of k is at
  // k + i * k_stride, [head_dim] floats. Different layers, heads and pages may be written at once.
  void Write(int64_t layer, int64_t kv_head, int64_t token, int64_t n, const float* k, int64_t k_stride,
             const float* v, int64_t v_stride);

  // Tokens [0, n) are complete in every layer.
  void Commit(int64_t n);

  // A page's keys and values in float32, as PageLayout::Read gives them; in the scratch also where a page of
  // floats might leave memory.
  PageLayout::Floats Read(int64_t layer, int64_t kv_head, int64_t page, float* scratch) const;

  // The page as it is stored.
  PinnedPage Stored(int64_t layer, int64_t kv_head, int64_t page) const;
  // KvPool::ReadAsItLies of it.
  PinnedPage AsItLies(int64_t layer, int64_t kv_head, int64_t page) const {
    return pool_->ReadAsItLies(*this->page(layer, kv_head, page));
  }
  // KvPool::Read of it.
  PinnedPage Stored(int64_t layer, int64_t kv_head, int64_t page, std::byte* scratch) const {
    return pool_->Read(*this->page(layer, kv_head, page), scratch);
  }
  // The same for one page at a time: where it lies packed it comes into memory of this thread's, and is there
  // until the thread reads another one's, of any sequence.
  PinnedPage StoredForNow(int64_t layer, int64_t kv_head, int64_t page) const;
  // KvPool::Peek of its page for who reads the keys from `token` on.
  const std::byte* Peek(int64_t layer, int64_t kv_head, int64_t token) const;

  // K alone, for those who only score; `scratch` is half as large.
  const float* ReadKeys(int64_t layer, int64_t kv_head, int64_t page, float* scratch) const;

  // Keys of tokens [token, token + n): row i goes to k + i * k_stride.
  void CopyKeys(int64_t layer, int64_t kv_head, int64_t token, int64_t n, float* k, int64_t k_stride) const;

  // K and V of any tokens, side by side: K [tokens, head_dim], V [head_dim, kPageTokens] of which as many
  // columns are written. At most kPageTokens of them; neighbours in the text are copied together.
  void Gather(int64_t layer, int64_t kv_head, std::span<const int32_t> tokens, float* k, float* v) const;

  // Whether pages may be elsewhere than in memory: then it pays to say which will be read, and to begin with
  // those that are near.
  bool on_disk() const { return pool_->on_disk(); }
  // Pages of a layer and head that will be read soon, in this order; by a generated token, where others like
  // it will follow, beside those of so many texts in all. What Expect sent for before, as the last token read
  // it, and is not among them, leaves memory first: so Remember comes after this.
  enum class For : uint8_t { kPrompt, kToken };
  void WillRead(int64_t layer, int64_t kv_head, std::span<const int64_t> pages, For reader,
                int64_t n_texts = 1) const;
  // What the newest tokens of a prompt read of a layer and head, what the newest of them read first, each
  // page once: the first generated token reads much the same. As many of these as have a share in the memory
  // that prompts can do without stay there until a token reads that layer and head (WillRead), or a prompt's
  // next block did, of this sequence or another. Throws std::bad_alloc.
  void KeepForToken(int64_t layer, int64_t kv_head, std::span<const int64_t> pages) const;
  // What the newest token read of a layer and head, and what it nearly read; Expect sends for what is so
  // remembered of all heads of a layer: where most of the tokens before it did not read it, and for what was
  // nearly read, as far as memory is free. One thread at a time for a layer.
  void Remember(int64_t layer, int64_t kv_head, std::span<const int64_t> pages,
                std::span<const int64_t> nearly) const;
  void Expect(int64_t layer) const;
  bool IsNear(int64_t layer, int64_t kv_head, int64_t page) const {
    return pool_->IsNear(*this->page(layer, kv_head, page));
  }

  KvPage* PageAt(int64_t layer, int64_t kv_head, int64_t page) const {
    return this->page(layer, kv_head, page).get();
  }

  // Takes over pages that are on disk, as the whole of an empty sequence: [n_layers][n_kv_heads][pages of n
  // tokens].
  void Adopt(int64_t n, std::span<const KvPool::Place> pages);
  // Pages that were taken over, and stay where they are: the full ones.
  int64_t n_adopted() const { return n_adopted_; }
  const std::shared_ptr<KvPool>& pool() const { return pool_; }

  // A sequence that shares all pages; either may go on without the other seeing it.
  KvSequence Fork() const;

  // Forgets tokens [n, size()). n <= size().
  void Truncate(int64_t n);

 private:
  // The one that the next token goes to, and the one before.
  static constexpr int64_t kNewestPages = 2;
  void KeepEnds(int64_t n);
  // To `pages`, those of a layer and head that one of the tables of Remember has.
  void AddRemembered(int64_t layer, int64_t kv_head, const std::vector<std::vector<int64_t>>& tables,
                     std::vector<KvPage*>& pages) const;
  // The newest pages, and with them the first.
  void SetKept(bool keep, int64_t from, int64_t until) const;
  std::size_t TableOf(int64_t layer, int64_t kv_head) const {
    return static_cast<std::size_t>(layer * geometry().n_kv_heads + kv_head);
  }
  std::shared_ptr<KvPage>& page(int64_t layer, int64_t kv_head, int64_t index) {
    return tables_[TableOf(layer, kv_head)][static_cast<std::size_t>(index)];
  }
  const std::shared_ptr<KvPage>& page(int64_t layer, int64_t kv_head, int64_t index) const {
    return const_cast<KvSequence*>(this)->page(layer, kv_head, index);
  }

  std::shared_ptr<KvPool> pool_;
  std::vector<std::vector<std::shared_ptr<KvPage>>> tables_;  // [n_layers * n_kv_heads][n_pages]
  int64_t size_ = 0;
  int64_t n_adopted_ = 0;
  // The newest pages, which the pool keeps beside the first.
  int64_t kept_from_ = 0;
  int64_t kept_until_ = 0;
  // [n_layers * n_kv_heads]; empty where pages stay in memory.
  mutable std::vector<std::vector<int64_t>> remembered_;
  mutable std::vector<std::vector<int64_t>> nearly_;
};

}  // namespace longheads
