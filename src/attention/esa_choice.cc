#include "attention/esa_choice.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace longheads {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Floats of importances that are kept at a time, 16 MiB: each query's largest must be known before any of
// them count. With less, keys that the store has to expand are expanded more often.
constexpr int64_t kImportances = 4 << 20;

// Queries whose products with a page stay in the L2 cache.
constexpr int64_t kTile = 64;

// Whole numbers in the order of the floats, so that NaN has a place in it too.
uint32_t Ascending(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 is 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float Largest(const float* x, int64_t n) {
  constexpr int64_t kLanes = 16;  // side by side, for SIMD
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = std::max(lanes[lane], x[i + lane]);
  }
  for (; i < n; ++i) lanes[0] = std::max(lanes[0], x[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

}  // namespace

void EsaChoice::MakeRoom(const EsaQuestion& question, const AttentionKernels& kernels, int n_threads) {
  const int64_t first_page = question.begin / kPageTokens;
  const int64_t end_page = (question.end + kPageTokens - 1) / kPageTokens;
  columns_ = (end_page - first_page) * kPageTokens;
  together_ = std::clamp<int64_t>(kImportances / columns_, 1, question.n_queries);
  const auto grow = [](auto& values, int64_t n) {
    if (static_cast<int64_t>(values.size()) < n) values.resize(static_cast<std::size_t>(n));
  };
  grow(importance_, together_ * columns_);
  grow(best_, together_);
  grow(scores_, columns_);
  grow(ranks_, columns_);
  grow(threads_, n_threads);
  for (Thread& thread : threads_) {
    thread.page.Reserve(question.keys->PageFloats());
    thread.workspace.Reserve(AttendWorkspace(kernels.row_tile, question.floats));
    grow(thread.rows, kTile * question.rows_per_part);
    grow(thread.products, kTile * question.rows_per_part * kPageTokens);
  }
}

void EsaChoice::ScorePage(const EsaQuestion& q, const AttentionKernels& kernels, int64_t page, int64_t first,
                          int64_t last, Thread& thread) {
  const int64_t begin = std::max(q.begin, page * kPageTokens);
  const int64_t n = std::min(q.end, (page + 1) * kPageTokens) - begin;
  const int64_t column = begin - q.begin / kPageTokens * kPageTokens;
  for (int64_t part = 0; part < q.n_parts; ++part) {
    const float* const keys =
        q.keys->Page(part, page, thread.page.data()) + (begin - page * kPageTokens) * q.floats;
    for (int64_t tile = first; tile < last; tile += kTile) {
      const int64_t n_rows = std::min(kTile, last - tile) * q.rows_per_part;
      for (int64_t row = 0; row < n_rows; ++row) {
        const int64_t c = tile + row / q.rows_per_part;
        thread.rows[static_cast<std::size_t>(row)] =
            q.rows + ((c * q.n_parts + part) * q.rows_per_part + row % q.rows_per_part) * q.floats;
      }
      kernels.scores(std::span(thread.rows).first(static_cast<std::size_t>(n_rows)), keys, n, q.floats,
                     thread.products.data(), kPageTokens, thread.workspace.data());
      for (int64_t row = 0; row < n_rows; ++row) {
        const float* const products = thread.products.data() + row * kPageTokens;
        float* const importance =
            importance_.data() + (tile - first + row / q.rows_per_part) * columns_ + column;
        if (part == 0 && row % q.rows_per_part == 0) {
          std::copy_n(products, n, importance);
        } else if (q.largest) {
          for (int64_t i = 0; i < n; ++i) importance[i] = std::max(importance[i], products[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) importance[i] += products[i];
        }
      }
    }
  }
}

float EsaChoice::Score(const EsaQuestion& q, int64_t token) const {
  const int64_t first = q.begin / kPageTokens * kPageTokens;
  const int64_t end = std::min(q.end, token + q.eps + 1);
  float near = scores_[static_cast<std::size_t>(token - first)];
  for (int64_t other = std::max(q.begin, token - q.eps); other < end; ++other) {
    near = std::max(near, scores_[static_cast<std::size_t>(other - first)]);
  }
  return near;
}

bool EsaChoice::Choose(const EsaQuestion& q, const AttentionKernels& kernels, ThreadPool& pool,
                       const CancelToken* cancel, int32_t* chosen) {
  LH_CHECK(q.k < q.end - q.begin);
  MakeRoom(q, kernels, pool.n_threads());
  const int64_t first_page = q.begin / kPageTokens;
  const int64_t n_pages = columns_ / kPageTokens;
  const int64_t begin = q.begin - first_page * kPageTokens;  // of the middle, in columns
  const int64_t end = q.end - first_page * kPageTokens;
  float* const scores = scores_.data();
  std::fill_n(scores, columns_, kLowest);
  for (int64_t first = 0; first < q.n_queries; first += together_) {
    if (Cancelled(cancel)) return false;
    const int64_t last = std::min(q.n_queries, first + together_);
    pool.Run(n_pages, [&](int64_t page, int thread) {
      ScorePage(q, kernels, first_page + page, first, last, threads_[static_cast<std::size_t>(thread)]);
    });
    pool.Run(last - first, [&](int64_t c, int) {
      best_[static_cast<std::size_t>(c)] = Largest(importance_.data() + c * columns_ + begin, end - begin);
    });
    pool.Run(n_pages, [&](int64_t page, int) {
      const int64_t to = std::min(end, (page + 1) * kPageTokens);
      for (int64_t c = 0; c < last - first; ++c) {
        const float* const importance = importance_.data() + c * columns_;
        const float best = best_[static_cast<std::size_t>(c)];
        for (int64_t m = std::max(begin, page * kPageTokens); m < to; ++m) {
          scores[m] = std::max(scores[m], importance[m] - best);
        }
      }
    });
  }
  if (Cancelled(cancel)) return false;

  pool.Run(n_pages, [&](int64_t page, int) {
    const int64_t to = std::min(end, (page + 1) * kPageTokens);
    for (int64_t m = std::max(begin, page * kPageTokens); m < to; ++m) {
      const float near = Score(q, first_page * kPageTokens + m);
      ranks_[static_cast<std::size_t>(m)] = {uint64_t{Ascending(near)} << 32 | Ascending(scores[m]),
                                             static_cast<int32_t>(first_page * kPageTokens + m)};
    }
  });
  const auto ranks = ranks_.begin() + begin;
  std::nth_element(ranks, ranks + q.k - 1, ranks_.begin() + end, [](const Rank& a, const Rank& b) {
    return a.score != b.score ? a.score > b.score : a.token < b.token;
  });
  for (int64_t i = 0; i < q.k; ++i) chosen[i] = ranks[i].token;
  std::sort(chosen, chosen + q.k);
  return true;
}

}  // namespace longheads
