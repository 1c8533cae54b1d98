#include "kv/reservation.h"

#include <algorithm>

#include "kv/pool.h"

namespace longheads {

void KvReservation::Set(uint64_t bytes) {
  if (pool_ == nullptr || bytes == bytes_) return;
  pool_->Reserve(bytes_, bytes);
  bytes_ = bytes;
}

void KvSharedReservation::Set(uint64_t bytes) {
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.bytes;
  while (sum > bytes) {
    const uint64_t cut = std::min(sum - bytes, parts_.back().bytes);
    parts_.back().bytes -= cut;
    sum -= cut;
    if (parts_.back().bytes == 0) parts_.pop_back();
  }
  if (bytes > sum && (parts_.empty() || parts_.back().reservation.use_count() > 1)) {
    parts_.push_back({.reservation = std::make_shared<KvReservation>(pool_)});
  }
  if (parts_.empty()) return;
  Part& last = parts_.back();
  last.bytes += bytes - sum;
  if (last.reservation.use_count() == 1) last.reservation->Set(last.bytes);
}

}  // namespace longheads
