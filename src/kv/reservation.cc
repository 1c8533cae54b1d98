#include "kv/reservation.h"

#include "kv/pool.h"

namespace longheads {

void KvReservation::Set(uint64_t bytes) {
  if (pool_ == nullptr || bytes == bytes_) return;
  pool_->Reserve(bytes_, bytes);
  bytes_ = bytes;
}

void KvSharedReservation::GrowTo(uint64_t bytes) {
  uint64_t reserved = 0;
  for (const auto& part : parts_) reserved += part->bytes();
  if (bytes <= reserved) return;
  if (parts_.empty() || parts_.back().use_count() > 1) {
    parts_.push_back(std::make_shared<KvReservation>(pool_));
  }
  parts_.back()->Set(parts_.back()->bytes() + bytes - reserved);
}

}  // namespace longheads
