// The unit of the key/value store: 256 tokens of one layer and KV head. Keys arrive on the plane their method
// wants; nothing here knows rotations or methods.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "kv/page_layout.h"
#include "tensor/tensor.h"

namespace longheads {

// What every page of a store has in common.
struct KvGeometry {
  int64_t n_layers = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  KvType type = KvType::kBF16;

  int64_t PageBytes() const { return 2 * kPageTokens * RowBytes(type, head_dim); }
  // Bytes that n tokens take, in whole pages over all layers and heads.
  uint64_t BytesFor(int64_t n_tokens) const {
    return static_cast<uint64_t>((n_tokens + kPageTokens - 1) / kPageTokens) *
           static_cast<uint64_t>(n_layers * n_kv_heads) * static_cast<uint64_t>(PageBytes());
  }
};

// Laid out as kv/page_layout.h says. A page that is full, or shared by two sequences, does not change any
// more.
struct KvPage {
  Buffer<std::byte> data;
};

// Hands out zeroed pages and takes them back when their last owner lets go. Thread-safe.
class KvPool : public std::enable_shared_from_this<KvPool> {
 public:
  // `conversions` turn float32 to the pages' type and back.
  static std::shared_ptr<KvPool> Create(const KvGeometry& geometry,
                                        const VectorKernels& conversions = FastestVectorKernels());

  const KvGeometry& geometry() const { return geometry_; }
  const PageLayout& layout() const { return *layout_; }
  // Throws std::bad_alloc.
  std::shared_ptr<KvPage> Acquire();
  // Bytes of pages that were given back and wait to be used again.
  uint64_t FreeBytes() const;
  // Pages alive now.
  int64_t n_pages() const;

 private:
  KvPool(const KvGeometry& geometry, const VectorKernels& conversions)
      : geometry_(geometry), layout_(MakePageLayout(geometry.type, geometry.head_dim, conversions)) {}
  void Release(KvPage* page);

  KvGeometry geometry_;
  std::unique_ptr<const PageLayout> layout_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<KvPage>> free_;
  int64_t n_pages_ = 0;
};

}  // namespace longheads
