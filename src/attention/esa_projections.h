// The compression of ESA's scores, fitted to one model: for each layer two matrices for which
// (W_q q) . (W_k k) stands for q . k. How they are found is esa_fit.h's business, where they are kept the
// engine's.
#pragma once

#include <cstdint>
#include <vector>

namespace longheads {

// q is, one KV head after the other, the sum of the queries that share it, rotated by `distance`; k the
// unrotated keys of all KV heads; both in the model's own order of dimensions. Rows are by weight: the first
// r of them are the fit of r rows.
struct EsaProjections {
  int64_t distance = 0;  // w
  int64_t n_rows = 0;
  int64_t n_columns = 0;  // n_kv_heads * head_dim
  struct Layer {
    std::vector<float> q;  // [n_rows, n_columns]
    std::vector<float> k;  // [n_rows, n_columns]
  };
  std::vector<Layer> layers;
};

}  // namespace longheads
