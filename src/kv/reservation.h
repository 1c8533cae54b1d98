// Memory that texts take beside their pages, held against what the pool's pages may take.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace longheads {

class KvPool;

// Pages have so many bytes less as long as this object lives: where they leave memory, those used longest ago
// make room.
class KvReservation {
 public:
  explicit KvReservation(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {}
  KvReservation(KvReservation&& other) noexcept { *this = std::move(other); }
  KvReservation& operator=(KvReservation&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~KvReservation() { Set(0); }

  uint64_t bytes() const { return bytes_; }
  void Set(uint64_t bytes);
  // Of the same pool, and of nothing yet.
  KvReservation Fresh() const { return KvReservation(pool_); }

 private:
  std::shared_ptr<KvPool> pool_;
  uint64_t bytes_ = 0;
};

// Of what only grows and forks share: what two of them have in common counts once, until both are gone.
class KvSharedReservation {
 public:
  explicit KvSharedReservation(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {}
  KvSharedReservation Fork() const { return *this; }

  // As many bytes at least. Throws std::bad_alloc.
  void GrowTo(uint64_t bytes);

 private:
  std::shared_ptr<KvPool> pool_;
  std::vector<std::shared_ptr<KvReservation>> parts_;  // the last may be this object's alone
};

}  // namespace longheads
