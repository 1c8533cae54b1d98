// What a store's pages had to do with the disk.
#pragma once

#include <cstdint>

namespace longheads {

// Since the pool was made. Each time that a page is pinned, to be read or written, counts: as a hit where it
// was in memory, also where it had come ahead of this very reading; as a miss where somebody waited for the
// disk, also where it was on its way. How much memory held before anything was sent for is what the plans
// count.
struct KvTraffic {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t packed = 0;             // of both, those that found it packed
  uint64_t planned = 0;            // pages that plans named, by each plan
  uint64_t planned_in_memory = 0;  // of them, those that were there by then, foreseen ones too
  uint64_t read_ahead = 0;         // pages brought before they were asked for
  uint64_t read_ahead_used = 0;    // and asked for after
  uint64_t landed = 0;             // of them, those taken before the system told that they were read
  uint64_t foreseen = 0;           // of them, by what the last token read: a plan asks for certain
  uint64_t foreseen_used = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  double waited_seconds = 0;  // for pages that were not there, and for room; of all threads together

  uint64_t asked() const { return hits + misses; }
  // Of readings of a page, those that found it in memory, and those that found it packed; of pages that plans
  // named, those that were there; of pages read ahead, and of those that were foreseen, those that were used:
  // 0 to 1, and 0 of none.
  double hit_rate() const { return Share(hits, asked()); }
  double packed_rate() const { return Share(packed, asked()); }
  double in_memory_when_planned() const { return Share(planned_in_memory, planned); }
  double used_ahead() const { return Share(read_ahead_used, read_ahead); }
  double well_foreseen() const { return Share(foreseen_used, foreseen); }

  KvTraffic& operator+=(const KvTraffic& other) {
    hits += other.hits;
    misses += other.misses;
    packed += other.packed;
    planned += other.planned;
    planned_in_memory += other.planned_in_memory;
    read_ahead += other.read_ahead;
    read_ahead_used += other.read_ahead_used;
    landed += other.landed;
    foreseen += other.foreseen;
    foreseen_used += other.foreseen_used;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    waited_seconds += other.waited_seconds;
    return *this;
  }
  KvTraffic operator-(const KvTraffic& earlier) const {
    return {.hits = hits - earlier.hits,
            .misses = misses - earlier.misses,
            .packed = packed - earlier.packed,
            .planned = planned - earlier.planned,
            .planned_in_memory = planned_in_memory - earlier.planned_in_memory,
            .read_ahead = read_ahead - earlier.read_ahead,
            .read_ahead_used = read_ahead_used - earlier.read_ahead_used,
            .landed = landed - earlier.landed,
            .foreseen = foreseen - earlier.foreseen,
            .foreseen_used = foreseen_used - earlier.foreseen_used,
            .bytes_read = bytes_read - earlier.bytes_read,
            .bytes_written = bytes_written - earlier.bytes_written,
            .waited_seconds = waited_seconds - earlier.waited_seconds};
  }

 private:
  static double Share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

}  // namespace longheads
