#include "report/selection_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/utf8.h"
#include "trace/trace_reader.h"

namespace longheads {
namespace {

// The trace's columns, so many of them side by side, over a text of n tokens.
class Columns {
 public:
  Columns(const TraceHeader& header, int64_t n_tokens, int64_t most)
      : grid_(header.columns), blocks_(header.blocks.value_or(BlockGrid{})) {
    const int64_t n = n_tokens > 0 ? CountColumn(grid_, n_tokens - 1) + 1 : 1;
    together_ = (n + most - 1) / most;
    for (int64_t column = 0; column < n; column += together_) {
      edges_.push_back(column == 0 ? 0 : grid_.Begin(column - (grid_.first > 0 ? 1 : 0)));
    }
    edges_.push_back(std::max<int64_t>(n_tokens, 1));
  }

  const std::vector<int64_t>& edges() const { return edges_; }
  int64_t n() const { return static_cast<int64_t>(edges_.size()) - 1; }
  int64_t OfKey(int64_t key) const { return CountColumn(grid_, key) / together_; }
  // -1: the text has no such block.
  int64_t OfBlock(int64_t block) const {
    if (block > (edges_.back() - 1 - blocks_.first) / blocks_.tokens) return -1;
    return OfKey(blocks_.Begin(block));
  }
  int64_t OfCounted(int64_t column) const { return column / together_; }

 private:
  BlockGrid grid_;
  BlockGrid blocks_;
  int64_t together_ = 1;
  std::vector<int64_t> edges_;
};

// What one head saw and chose of each column, while its record is read.
struct Column {
  bool seen = false;
  bool chosen = false;
  float score = BlockChoice::kNoScore;
  float share = 0;
};

void Choose(Column& column, float score) {
  column.seen = column.chosen = true;
  if (!(column.score >= score)) column.score = score;  // also where it had none
}

bool Alike(const Column& a, const Column& b) {
  const bool same_score = a.score == b.score || (std::isnan(a.score) && std::isnan(b.score));
  return a.seen == b.seen && a.chosen == b.chosen && same_score && a.share == b.share;
}

std::vector<ViewCell> Cells(const std::vector<Column>& columns) {
  std::vector<ViewCell> cells;
  for (std::size_t begin = 0, end = 0; begin < columns.size(); begin = end) {
    while (end < columns.size() && Alike(columns[begin], columns[end])) ++end;
    if (!columns[begin].seen) continue;
    cells.push_back({.column = static_cast<int32_t>(begin),
                     .n = static_cast<int32_t>(end - begin),
                     .chosen = columns[begin].chosen,
                     .score = columns[begin].score,
                     .share = columns[begin].share});
  }
  return cells;
}

Error Beyond(const std::string& path) {
  return {ErrorKind::kInvalidInput,
          fmt::format("{}: the trace is damaged (it tells of tokens that its text has not): write it anew",
                      path)};
}

// Where the characters that begin in bytes [begin, end) begin and end.
std::string_view WholeCharacters(std::string_view text, int64_t begin, int64_t end) {
  const auto is_inside = [&](int64_t at) {
    return at < static_cast<int64_t>(text.size()) &&
           (static_cast<unsigned char>(text[static_cast<std::size_t>(at)]) & 0xc0) == 0x80;
  };
  for (int i = 0; i < 3 && is_inside(begin); ++i) ++begin;
  for (int i = 0; i < 3 && is_inside(end); ++i) ++end;
  if (begin > end) return {};
  return text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

class ViewReader {
 public:
  ViewReader(const std::string& path, const SelectionViewOptions& options) : path_(path), options_(options) {}

  Result<SelectionView> Read() {
    LH_TRY(ReadTraceFile(path_, {.on_header = [&](const TraceHeader& header) -> Status {
                                   view_.header = header;
                                   return {};
                                 },
                                 .on_tokens = [&](const TraceTokens& tokens) -> Status {
                                   const int64_t before = static_cast<int64_t>(text_.size());
                                   for (const int64_t end : tokens.ends) ends_.push_back(before + end);
                                   text_ += tokens.text;
                                   return {};
                                 }}));
    if (view_.header.prompt_tokens > n_tokens()) return tl::unexpected<Error>(Beyond(path_));
    columns_.emplace(view_.header, n_tokens(), options_.most_columns);
    view_.edges = columns_->edges();
    for (std::size_t c = 0; c + 1 < view_.edges.size(); ++c) {
      view_.column_texts.push_back(Text(view_.edges[c], view_.edges[c + 1]));
    }
    view_.answer = Text(view_.header.prompt_tokens, n_tokens());
    LH_TRY(FindNeedle());
    LH_TRY(ReadTraceFile(path_, {.on_selection = [&](const TokenSelection& s) { return AddToken(s); },
                                 .on_counts = [&](const PromptCounts& c) { return AddCounts(c); }}));
    return std::move(view_);
  }

 private:
  int64_t n_tokens() const { return static_cast<int64_t>(ends_.size()); }
  int64_t TextBegin(int64_t token) const {
    return token == 0 ? 0 : ends_[static_cast<std::size_t>(token - 1)];
  }
  std::string Text(int64_t begin, int64_t end) const {
    begin = std::min(begin, n_tokens());
    end = std::min(end, n_tokens());
    return ReplaceIllFormedUtf8(WholeCharacters(text_, TextBegin(begin), TextBegin(end)));
  }
  // Of one token: its bytes may be part of a character.
  std::string TokenText(int64_t token) const {
    if (token >= n_tokens()) return "";
    const int64_t begin = TextBegin(token);
    return ReplaceIllFormedUtf8(std::string_view(text_).substr(
        static_cast<std::size_t>(begin), static_cast<std::size_t>(TextBegin(token + 1) - begin)));
  }

  Status FindNeedle() {
    std::optional<TextRange> range = view_.header.needle;
    if (!options_.needle.empty()) {
      range = FindText(text_, options_.needle);
      if (!range) {
        return InvalidInput(
            fmt::format("{}: --needle '{}' is not in the text of the trace", path_, options_.needle));
      }
    }
    if (!range || range->begin >= range->end) return {};
    if (range->end > static_cast<int64_t>(text_.size())) return tl::unexpected<Error>(Beyond(path_));
    const auto token_at = [&](int64_t byte) {
      return std::upper_bound(ends_.begin(), ends_.end(), byte) - ends_.begin();
    };
    SelectionView::Needle needle{
        .text = ReplaceIllFormedUtf8(std::string_view(text_).substr(
            static_cast<std::size_t>(range->begin), static_cast<std::size_t>(range->end - range->begin))),
        .begin = static_cast<int32_t>(columns_->OfKey(token_at(range->begin))),
        .end = static_cast<int32_t>(columns_->OfKey(token_at(range->end - 1)) + 1)};
    view_.needle = std::move(needle);
    return {};
  }

  bool HasRoom() {
    const bool room = n_cells_ < options_.most_cells;
    if (!room) ++view_.n_left_out;
    return room;
  }

  Status AddToken(const TokenSelection& selection) {
    if (selection.position >= n_tokens()) return tl::unexpected<Error>(Beyond(path_));
    if (!HasRoom()) return {};
    ViewFrame frame{.token_begin = selection.position,
                    .token_end = selection.position + 1,
                    .prompt = false,
                    .text = TokenText(selection.position),
                    .next = TokenText(selection.position + 1),
                    .heads = {}};
    std::vector<Column> columns;
    for (const HeadSelection& head : selection.heads) {
      columns.assign(static_cast<std::size_t>(columns_->n()), {.share = 1});
      for (const KeyRange& range : head.seen) {
        if (range.end > n_tokens()) return tl::unexpected<Error>(Beyond(path_));
        if (range.begin == range.end) continue;
        const int64_t last = columns_->OfKey(range.end - 1);
        for (int64_t c = columns_->OfKey(range.begin); c <= last; ++c)
          columns[static_cast<std::size_t>(c)].seen = true;
      }
      for (const TakenBlock& taken : head.taken) {
        const int64_t column = columns_->OfBlock(taken.block);
        if (column < 0) return tl::unexpected<Error>(Beyond(path_));
        Choose(columns[static_cast<std::size_t>(column)], taken.score);
      }
      frame.heads.push_back(Cells(columns));
      n_cells_ += 1 + static_cast<int64_t>(frame.heads.back().size());
    }
    view_.frames.push_back(std::move(frame));
    return {};
  }

  Status AddCounts(const PromptCounts& counts) {
    if (counts.token_end > n_tokens() || counts.token_begin >= counts.token_end) {
      return tl::unexpected<Error>(Beyond(path_));
    }
    if (!HasRoom()) return {};
    ViewFrame frame{.token_begin = counts.token_begin,
                    .token_end = counts.token_end,
                    .prompt = true,
                    .text = {},
                    .next = {},
                    .heads = {}};
    const auto n = static_cast<float>(counts.token_end - counts.token_begin);
    std::vector<Column> columns;
    for (const HeadCounts& head : counts.heads) {
      columns.assign(static_cast<std::size_t>(columns_->n()), {});
      for (const HeadCounts::Seen& seen : head.seen) {
        const int64_t c = columns_->OfCounted(seen.column);
        if (c >= columns_->n()) return tl::unexpected<Error>(Beyond(path_));
        Column& column = columns[static_cast<std::size_t>(c)];
        column.seen = true;
        column.share = std::max(column.share, std::min(1.0f, static_cast<float>(seen.tokens) / n));
      }
      for (const HeadCounts::Taken& taken : head.taken) {
        const int64_t c = columns_->OfCounted(taken.column);
        if (c >= columns_->n()) return tl::unexpected<Error>(Beyond(path_));
        Choose(columns[static_cast<std::size_t>(c)], taken.mean_score);
      }
      frame.heads.push_back(Cells(columns));
      n_cells_ += 1 + static_cast<int64_t>(frame.heads.back().size());
    }
    view_.prompt_frames.push_back(std::move(frame));
    return {};
  }

  const std::string& path_;
  const SelectionViewOptions& options_;
  SelectionView view_;
  std::string text_;
  std::vector<int64_t> ends_;
  std::optional<Columns> columns_;
  int64_t n_cells_ = 0;
};

}  // namespace

Result<SelectionView> ReadSelectionView(const std::string& path, const SelectionViewOptions& options) {
  return ViewReader(path, options).Read();
}

}  // namespace longheads
