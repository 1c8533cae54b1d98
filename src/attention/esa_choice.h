// ESA's choice of tokens: the importance of every middle token for a chunk of queries, its smoothing by
// proximity, and the best k. Which tokens are in the middle, and what vectors stand for queries and keys, is
// esa.h's business.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cancel.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kv/page.h"
#include "tensor/tensor.h"

namespace longheads {

// Where the vectors of keys lie: `parts` of so many floats for each token, by pages of kPageTokens.
struct EsaKeys {
  virtual ~EsaKeys() = default;
  // [kPageTokens, floats] of one part; `scratch` has PageFloats() floats for those who need to expand it.
  virtual const float* Page(int64_t part, int64_t page, float* scratch) const = 0;
  virtual int64_t PageFloats() const { return 0; }
};

struct EsaQuestion {
  const EsaKeys* keys = nullptr;
  int64_t n_parts = 1;
  int64_t floats = 0;  // of a part
  // Vectors of the queries: query c's row r for part p at rows[(c * n_parts + p) * rows_per_part + r], each
  // [floats].
  const float* rows = nullptr;
  int64_t n_queries = 0;
  int64_t rows_per_part = 1;
  // A token's importance for a query: the largest product of a row and a part, not the sum of all.
  bool largest = false;
  int64_t begin = 0;  // the middle tokens are [begin, end)
  int64_t end = 0;
  int64_t k = 0;    // < end - begin
  int64_t eps = 0;  // how far a token's score reaches
};

// Memory that is used again from choice to choice.
class EsaChoice {
 public:
  // Writes the k tokens, ascending. With f(m; c) the importance of token m for query c,
  //   s(m)  = max over c of (f(m; c) - max over m' of f(m'; c))
  //   s'(m) = max of s over [m - eps, m + eps], within the middle
  // the tokens of the largest s' are taken, of equal ones those of the larger s, then the lower. False, and
  // nothing written, where `cancel` was raised. Allocates only where the text outgrew what it had.
  bool Choose(const EsaQuestion& question, const AttentionKernels& kernels, ThreadPool& pool,
              const CancelToken* cancel, int32_t* chosen);
  // s' of a middle token in the choice that was made last.
  float Score(const EsaQuestion& question, int64_t token) const;

 private:
  struct Thread {
    Buffer<float> page;
    Buffer<float> workspace;
    std::vector<const float*> rows;
    std::vector<float> products;  // [rows, kPageTokens]
  };
  struct Rank {
    uint64_t score;  // s' above s, as whole numbers in their order
    int32_t token;
  };

  void MakeRoom(const EsaQuestion& question, const AttentionKernels& kernels, int n_threads);
  // Importances of a page's tokens for queries [first, last), to their columns.
  void ScorePage(const EsaQuestion& question, const AttentionKernels& kernels, int64_t page, int64_t first,
                 int64_t last, Thread& thread);

  int64_t columns_ = 0;   // tokens of the pages that hold the middle
  int64_t together_ = 0;  // queries that are scored at a time
  std::vector<Thread> threads_;
  std::vector<float> importance_;  // [together_, columns_]
  std::vector<float> best_;        // [together_]: the largest of each row
  std::vector<float> scores_;      // [columns_]: s
  std::vector<Rank> ranks_;        // [columns_]
};

}  // namespace longheads
