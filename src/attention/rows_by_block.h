// Turns what query rows chose, row by row, into a plan's rows, block by block.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan.h"

namespace longheads {

class RowsByBlock {
 public:
  // Forgets the rows; those to come choose among blocks [0, n_blocks).
  void Begin(int64_t n_blocks) {
    counts_.assign(static_cast<std::size_t>(n_blocks), 0);
    entries_.clear();
  }

  void Add(int64_t block, int64_t row, int64_t x) {
    ++counts_[static_cast<std::size_t>(block)];
    entries_.push_back(
        {static_cast<int32_t>(block), {.row = static_cast<int32_t>(row), .x = static_cast<int32_t>(x)}});
  }

  // Appends the rows to the plan and calls segment(block, row_begin, row_end) for every block that has some,
  // in ascending order. Within a block rows stay in the order they came in.
  template <typename SegmentFunction>
  void Emit(Plan& plan, const SegmentFunction& segment) {
    int64_t at = static_cast<int64_t>(plan.rows.size());
    int64_t row_begin = at;
    plan.rows.resize(plan.rows.size() + entries_.size());
    for (int64_t& count : counts_) {  // from how many rows to where they begin
      const int64_t n_rows = count;
      count = at;
      at += n_rows;
    }
    for (const Entry& entry : entries_) {
      plan.rows[static_cast<std::size_t>(counts_[static_cast<std::size_t>(entry.block)]++)] = entry.row;
    }
    for (std::size_t block = 0; block < counts_.size(); ++block) {
      const int64_t row_end = counts_[block];  // by now where they end
      if (row_begin < row_end) segment(static_cast<int64_t>(block), row_begin, row_end);
      row_begin = row_end;
    }
  }

 private:
  struct Entry {
    int32_t block;
    PlanRow row;
  };
  std::vector<Entry> entries_;
  std::vector<int64_t> counts_;  // per block
};

}  // namespace longheads
