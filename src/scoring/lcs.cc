#include "scoring/lcs.h"

#include <algorithm>

namespace longheads {

LcsTable::LcsTable(std::span<const uint32_t> a, std::span<const uint32_t> b)
    : n_b_(b.size()), lengths_((a.size() + 1) * (b.size() + 1), 0) {
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      lengths_[i * (n_b_ + 1) + j] =
          a[i - 1] == b[j - 1] ? at(i - 1, j - 1) + 1 : std::max(at(i - 1, j), at(i, j - 1));
    }
  }
}

uint32_t LcsLength(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> row(b.size() + 1, 0);
  for (const uint32_t element : a) {
    uint32_t diagonal = 0;  // the row above, one to the left
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const uint32_t above = row[j];
      row[j] = element == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace longheads
