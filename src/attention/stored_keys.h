// The keys of one layer and KV head, one after the other, as they lie in the store: what policies make block
// vectors from.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/sequence.h"

namespace longheads {

class StoredKeys {
 public:
  // `page` is for those who use it again; it grows where pages are not float32 that stays in memory.
  StoredKeys(const KvSequence& kv, int64_t layer, int64_t kv_head, std::vector<float>& page)
      : kv_(kv), layer_(layer), kv_head_(kv_head), page_(page) {
    const KvGeometry& geometry = kv.geometry();
    if (geometry.type != KvType::kF32 || kv.on_disk()) {
      page_.resize(static_cast<std::size_t>(2 * kPageTokens * geometry.head_dim));
    }
  }

  // [head_dim] of token j, on the plane that keys are stored on, until the next call.
  const float* operator[](int64_t j) {
    if (j / kPageTokens != at_) {
      at_ = j / kPageTokens;
      keys_ = kv_.Read(layer_, kv_head_, at_, page_.data()).k;
    }
    return keys_ + j % kPageTokens * kv_.geometry().head_dim;
  }

 private:
  const KvSequence& kv_;
  int64_t layer_;
  int64_t kv_head_;
  int64_t at_ = -1;  // the page that keys_ is of
  const float* keys_ = nullptr;
  std::vector<float>& page_;
};

}  // namespace longheads
