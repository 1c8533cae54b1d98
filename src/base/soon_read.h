// Memory that is read soon: who waits for something else meanwhile asks for it into the processor's caches.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "base/memory.h"

namespace longheads {

// Thread-safe. What is named may go while it is: to ask for what is not there is no fault.
class SoonRead {
 public:
  static constexpr std::size_t kMostPieces = 4;
  // Asked for at a time: of less, looking for what one waits for would take longer than asking.
  static constexpr std::size_t kSome = 4096;

  // In the order in which they are read, and in the place of what was named before. By one thread at a time.
  void Name(std::span<const std::span<const std::byte>> pieces) {
    LH_CHECK(pieces.size() <= kMostPieces);
    n_.store(0, std::memory_order_relaxed);
    std::size_t n = 0;
    for (std::size_t i = 0; i < kMostPieces; ++i) {
      const std::span<const std::byte> piece = i < pieces.size() ? pieces[i] : std::span<const std::byte>();
      pieces_[i].begin.store(piece.data(), std::memory_order_relaxed);
      pieces_[i].bytes.store(piece.size(), std::memory_order_relaxed);
      n += InSome(piece.size());
    }
    next_.store(0, std::memory_order_relaxed);
    n_.store(n, std::memory_order_release);
  }

  // The next few bytes of a piece; none where all are taken. For one of the callers alone, but for who asks
  // while others are named.
  std::span<const std::byte> Take() {
    // Where nothing is left, those who look again and again change nothing.
    if (next_.load(std::memory_order_relaxed) >= n_.load(std::memory_order_acquire)) return {};
    std::size_t at = next_.fetch_add(1, std::memory_order_relaxed);
    for (const Piece& piece : pieces_) {
      const std::size_t bytes = piece.bytes.load(std::memory_order_relaxed);
      if (at < InSome(bytes)) {
        return std::span(piece.begin.load(std::memory_order_relaxed), bytes)
            .subspan(at * kSome, std::min(kSome, bytes - at * kSome));
      }
      at -= InSome(bytes);
    }
    return {};
  }

  // Asks for them, into the second cache.
  void FetchSome() {
    const std::span<const std::byte> some = Take();
    for (std::size_t i = 0; i < some.size(); i += kCacheLine) {
      __builtin_prefetch(some.data() + i, /*rw=*/0, /*locality=*/2);
    }
  }

 private:
  struct Piece {
    std::atomic<const std::byte*> begin = nullptr;
    std::atomic<std::size_t> bytes = 0;
  };
  static std::size_t InSome(std::size_t bytes) { return (bytes + kSome - 1) / kSome; }

  std::array<Piece, kMostPieces> pieces_;
  std::atomic<std::size_t> n_ = 0;  // times kSome
  alignas(kCacheLine) std::atomic<std::size_t> next_ = 0;
};

}  // namespace longheads
