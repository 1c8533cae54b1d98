// A trace as it is shown: columns, cells and texts against the trace; and pages that no text can break.
#include "report/selection_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "report/selection_figure.h"
#include "report/selection_page.h"
#include "tests/support/trace_cases.h"
#include "trace/trace_writer.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

class ViewedTrace : public testing::Test {
 protected:
  std::string path_ = fs::temp_directory_path() / fmt::format("longheads-view-{}", getpid());
  ~ViewedTrace() override { fs::remove(path_); }

  Result<SelectionView> View(const TraceCase& one, const SelectionViewOptions& options = {}) {
    const std::string bytes = TraceBytes(one);
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return ReadSelectionView(path_, options);
  }
};

TEST_F(ViewedTrace, CellsAreWhatTheTraceSays) {
  const TraceCase one = MakeTraceCase(1);
  for (const int64_t most : {int64_t{512}, int64_t{3}, int64_t{1}}) {
    const Result<SelectionView> view = View(one, {.most_columns = most});
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_LE(view->n_columns(), most);
    EXPECT_EQ(view->edges.front(), 0);
    EXPECT_EQ(view->edges.back(), 205);
    ASSERT_EQ(view->frames.size(), one.selections.size());
    ASSERT_EQ(view->prompt_frames.size(), one.counts.size());
    const auto column_of = [&](int64_t key) {
      int64_t c = 0;
      while (view->edges[static_cast<std::size_t>(c + 1)] <= key) ++c;
      return c;
    };
    for (std::size_t f = 0; f < view->frames.size(); ++f) {
      EXPECT_EQ(view->frames[f].token_begin, one.selections[f].position);
      for (std::size_t row = 0; row < 8; ++row) {
        const HeadSelection& head = one.selections[f].heads[row];
        std::set<int64_t> seen, chosen;
        std::map<int64_t, float> best;
        for (const KeyRange& range : head.seen) {
          for (int64_t j = range.begin; j < range.end; ++j) seen.insert(column_of(j));
        }
        for (const TakenBlock& taken : head.taken) {
          const int64_t c = column_of(taken.block * 16);
          chosen.insert(c);
          if (std::isnan(taken.score)) continue;
          const auto [at, added] = best.emplace(c, taken.score);
          if (!added) at->second = std::max(at->second, taken.score);
        }
        seen.insert(chosen.begin(), chosen.end());
        std::set<int64_t> view_seen, view_chosen;
        int64_t end = 0;
        for (const ViewCell& cell : view->frames[f].heads[row]) {
          EXPECT_GE(cell.column, end);
          end = cell.column + cell.n;
          for (int64_t c = cell.column; c < end; ++c) {
            view_seen.insert(c);
            if (cell.chosen) view_chosen.insert(c);
            if (best.contains(c)) {
              EXPECT_EQ(cell.score, best[c]);
            } else {
              EXPECT_TRUE(std::isnan(cell.score));
            }
          }
        }
        ASSERT_EQ(view_seen, seen);
        ASSERT_EQ(view_chosen, chosen);
      }
    }
  }
}

TEST_F(ViewedTrace, TextsAreWholeCharactersAndNothingIsLost) {
  TraceCase one = MakeTraceCase(2);
  one.tokens = {};
  // "ö" split between tokens, everywhere.
  for (int i = 0; i < 205; ++i) one.tokens.Add(i, i % 2 == 0 ? "w\xc3" : "\xb6");
  one.header.columns = {.first = 0, .tokens = 1};
  one.header.needle.reset();
  const Result<SelectionView> view = View(one);
  ASSERT_TRUE(view) << view.error().message;
  std::string all;
  for (const std::string& text : view->column_texts) all += text;
  std::string expected;
  for (int i = 0; i < 102; ++i) expected += "w\xc3\xb6";
  EXPECT_EQ(all, expected + "w\xEF\xBF\xBD");
}

TEST_F(ViewedTrace, FindsTheNeedle) {
  const TraceCase one = MakeTraceCase(3);  // bytes 300 to 320 of "wörd0 wörd1 ..."
  const Result<SelectionView> recorded = View(one);
  ASSERT_TRUE(recorded && recorded->needle);
  EXPECT_EQ(recorded->needle->text, one.tokens.text.substr(300, 20));
  // Tokens of 7 bytes: number 42 to 45, in the second column of 32.
  EXPECT_EQ(recorded->needle->begin, 1);
  EXPECT_EQ(recorded->needle->end, 2);
  const Result<SelectionView> asked = View(one, {.needle = "w\xc3\xb6rd6"});
  ASSERT_TRUE(asked && asked->needle);
  EXPECT_EQ(asked->needle->begin, 0);
  const Result<SelectionView> missing = View(one, {.needle = "elsewhere"});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("--needle 'elsewhere'"), std::string::npos);
}

TEST_F(ViewedTrace, WhatDoesNotFitTheTextIsRefused) {
  const auto refused = [&](const auto& change) {
    TraceCase one = MakeTraceCase(4);
    change(one);
    const Result<SelectionView> view = View(one);
    return !view && view.error().message.find("damaged") != std::string::npos;
  };
  EXPECT_TRUE(refused([](TraceCase& one) { one.selections[0].position = 205; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.selections[0].heads[0].seen = {{0, 300}}; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.selections[0].heads[0].taken = {{13, 1.0f}}; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.selections[0].heads[0].taken = {{0x7fffffff - 1, 1.0f}}; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.counts[0].heads[0].seen = {{9, 1}}; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.counts[0].token_end = 206; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.header.prompt_tokens = 206; }));
  EXPECT_TRUE(refused([](TraceCase& one) { one.header.needle = TextRange{.begin = 0, .end = 100000}; }));
}

TEST_F(ViewedTrace, KeepsAPageSmallAndSaysWhatIsLeftOut) {
  const TraceCase one = MakeTraceCase(5);
  const Result<SelectionView> view = View(one, {.most_cells = 1});
  ASSERT_TRUE(view);
  EXPECT_EQ(view->prompt_frames.size() + view->frames.size(), 1u);
  EXPECT_EQ(view->n_left_out, 6);
  EXPECT_NE(SelectionPage(*view).find("The first 1 of 7 records"), std::string::npos);
}

// Whatever a text, a model or a needle is called.
TEST_F(ViewedTrace, NoTextBreaksThePage) {
  TraceCase one = MakeTraceCase(6);
  const std::string hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\n";
  one.tokens = {};
  for (int i = 0; i < 205; ++i) one.tokens.Add(i, hostile);
  one.header.model = one.header.attention = one.header.program = hostile;
  const Result<SelectionView> view = View(one, {.needle = "<img src=x"});
  ASSERT_TRUE(view) << view.error().message;
  const std::string page = SelectionPage(*view);
  std::size_t n_scripts = 0;
  for (std::size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1))
    ++n_scripts;
  EXPECT_EQ(n_scripts, 2u);  // the data, and the page's own
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("alert(1)</"), std::string::npos);
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  const std::string figure = SelectionFigure(*view, 1);
  EXPECT_EQ(figure.find("<script"), std::string::npos);
  EXPECT_EQ(figure.find("<img"), std::string::npos);
}

TEST_F(ViewedTrace, EmptyTracesMakePagesToo) {
  TraceCase one = MakeTraceCase(7);
  one.selections.clear();
  one.counts.clear();
  one.tokens = {};
  one.header.prompt_tokens = 0;
  one.header.needle.reset();
  const Result<SelectionView> view = View(one);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_NE(SelectionPage(*view).find("</html>"), std::string::npos);
  EXPECT_NE(SelectionFigure(*view, std::nullopt).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace longheads
