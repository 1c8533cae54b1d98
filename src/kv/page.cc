#include "kv/page.h"

#include <cstring>
#include <utility>

namespace longheads {

std::shared_ptr<KvPool> KvPool::Create(const KvGeometry& geometry, const VectorKernels& conversions) {
  return std::shared_ptr<KvPool>(new KvPool(geometry, conversions));
}

std::shared_ptr<KvPage> KvPool::Acquire() {
  std::unique_ptr<KvPage> page;
  {
    std::lock_guard lock(mutex_);
    free_.reserve(static_cast<std::size_t>(n_pages_) + 1);  // so that Release never allocates
    if (!free_.empty()) {
      page = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (page) {
    std::memset(page->data.data(), 0, static_cast<std::size_t>(page->data.size()));
  } else {
    page = std::make_unique<KvPage>();
    page->data.Reset(geometry_.PageBytes());
  }
  {
    std::lock_guard lock(mutex_);
    ++n_pages_;
  }
  return std::shared_ptr<KvPage>(page.release(),
                                 [pool = shared_from_this()](KvPage* p) { pool->Release(p); });
}

uint64_t KvPool::FreeBytes() const {
  std::lock_guard lock(mutex_);
  return free_.size() * static_cast<uint64_t>(geometry_.PageBytes());
}

int64_t KvPool::n_pages() const {
  std::lock_guard lock(mutex_);
  return n_pages_;
}

void KvPool::Release(KvPage* page) {
  std::unique_ptr<KvPage> owned(page);
  std::lock_guard lock(mutex_);
  --n_pages_;
  if (free_.size() < free_.capacity()) free_.push_back(std::move(owned));
}

}  // namespace longheads
