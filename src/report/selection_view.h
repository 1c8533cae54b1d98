// A trace as it is shown: the text in columns, and for every token (or block of the prompt's tokens) what
// every head saw and chose of each column. Read here; drawn by selection_page.h and selection_figure.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace longheads {

// Columns [column, column + n) of one head, alike.
struct ViewCell {
  int32_t column = 0;
  int32_t n = 1;
  bool chosen = false;                  // else it was seen without a choice: the first chunk, the newest
  float score = BlockChoice::kNoScore;  // the best of the column's chosen blocks
  float share = 1;                      // of the frame's tokens that saw it
};

// What is seen at once: one token's heads, or a prompt block's.
struct ViewFrame {
  int64_t token_begin = 0;  // positions
  int64_t token_end = 0;
  bool prompt = false;                       // counted over a block of the prompt's tokens
  std::string text;                          // the token's; UTF-8
  std::string next;                          // the text of the token that follows: what the query led to
  std::vector<std::vector<ViewCell>> heads;  // [n_layers, n_heads], columns ascending
};

struct SelectionView {
  TraceHeader header;
  std::vector<int64_t> edges;             // columns are keys [edges[c], edges[c + 1])
  std::vector<std::string> column_texts;  // UTF-8
  // The needle, where it is known: columns [begin, end), and where in the first and last one's texts it lies.
  struct Needle {
    std::string text;
    int32_t begin = 0;
    int32_t end = 0;
  };
  std::optional<Needle> needle;
  std::vector<ViewFrame> prompt_frames;
  std::vector<ViewFrame> frames;  // of single tokens
  int64_t n_left_out = 0;         // frames of tokens beyond what is kept
  std::string answer;             // the text after the prompt

  int64_t n_columns() const { return static_cast<int64_t>(edges.size()) - 1; }
  int64_t n_rows() const { return header.n_layers * header.n_heads; }
};

struct SelectionViewOptions {
  std::string needle = {};  // text to look for instead of what the trace says; empty: that
  // Wider texts get wider columns. A screen has no more.
  int64_t most_columns = 512;
  // Cells that are kept, for a page of a few megabytes; later tokens are left out, and counted.
  int64_t most_cells = 3'000'000;
};

// Refuses a needle that is not in the text.
Result<SelectionView> ReadSelectionView(const std::string& path, const SelectionViewOptions& options);

}  // namespace longheads
