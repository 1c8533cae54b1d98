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

// Of what forks share, and each adds to at its end or cuts there: what they have in common counts once, until
// the last of them is gone.
class KvSharedReservation {
 public:
  explicit KvSharedReservation(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {}
  KvSharedReservation Fork() const { return *this; }

  // So many bytes, of which those there were stay what they are. Throws std::bad_alloc where they are more.
  void Set(uint64_t bytes);

 private:
  struct Part {
    std::shared_ptr<KvReservation> reservation;
    uint64_t bytes = 0;  // of it, from its beginning; a fork may have the rest
  };
  std::shared_ptr<KvPool> pool_;
  std::vector<Part> parts_;
};

}  // namespace longheads
