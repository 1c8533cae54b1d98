#include "report/selection_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "report/svg.h"

namespace longheads {
namespace {

constexpr const char* kInk = "var(--ink)";
constexpr const char* kNeedle = "var(--needle)";
constexpr const char* kSeen = "#cdd2d8";
// Shares up to 1/4, 1/2, 3/4, 1.
constexpr std::array<const char*, 4> kShades = {"#b2d0ee", "#6f9fd0", "#3a6ca8", "#08285c"};

// 0 not seen, 1 seen without a choice, 2 .. 5 chosen, by the share of tokens.
std::vector<uint8_t> Shades(const SelectionView& view, std::span<const ViewFrame> frames) {
  const std::size_t n_columns = static_cast<std::size_t>(view.n_columns());
  std::vector<int64_t> chosen(static_cast<std::size_t>(view.n_rows()) * n_columns), seen(chosen);
  for (const ViewFrame& frame : frames) {
    for (std::size_t row = 0; row < frame.heads.size(); ++row) {
      for (const ViewCell& cell : frame.heads[row]) {
        for (int32_t c = cell.column; c < cell.column + cell.n; ++c) {
          const std::size_t at = row * n_columns + static_cast<std::size_t>(c);
          ++seen[at];
          if (cell.chosen) ++chosen[at];
        }
      }
    }
  }
  // Where the method never chooses, what is seen is what there is to show.
  const bool chooses = std::ranges::any_of(chosen, [](int64_t n) { return n > 0; });
  const int64_t n_frames = static_cast<int64_t>(frames.size());
  std::vector<uint8_t> shades;
  for (std::size_t at = 0; at < seen.size(); ++at) {
    const int64_t n = chooses ? chosen[at] : seen[at];
    const int64_t quarter = n == 0 ? 0 : (4 * n + n_frames - 1) / n_frames;  // 1 .. 4
    shades.push_back(static_cast<uint8_t>(n > 0 ? quarter + 1 : seen[at] > 0 ? 1 : 0));
  }
  return shades;
}

// All cells of one shade as one path, a rectangle for each run of them.
std::string Runs(const std::vector<uint8_t>& shades, uint8_t shade, std::size_t n_columns) {
  std::string d;
  for (std::size_t begin = 0; begin < shades.size();) {
    const std::size_t row_end = (begin / n_columns + 1) * n_columns;
    std::size_t end = begin;
    while (end < row_end && shades[end] == shade) ++end;
    if (end > begin) {
      d += fmt::format("M{} {}h{}v1h-{}z", begin % n_columns, begin / n_columns, end - begin, end - begin);
    }
    begin = std::max(end, begin + 1);
  }
  return d;
}

}  // namespace

std::string SelectionFigure(const SelectionView& view, std::optional<int64_t> token) {
  std::span<const ViewFrame> frames = view.frames;
  if (token) {
    LH_CHECK(1 <= *token && *token <= static_cast<int64_t>(frames.size()));
    frames = frames.subspan(static_cast<std::size_t>(*token - 1), 1);
  }
  const std::vector<uint8_t> shades = Shades(view, frames);
  const std::size_t n_columns = static_cast<std::size_t>(view.n_columns());
  const auto n_rows = static_cast<double>(view.n_rows());

  constexpr double kLeft = 64, kTop = 44, kWidth = 640, kBottom = 76;
  const double row_height = std::clamp(480 / n_rows, 1.0, 14.0);
  const double height = n_rows * row_height;
  const double column_width = kWidth / static_cast<double>(n_columns);
  const std::string what = token ? fmt::format("the query of '{}' (token {})", frames[0].text, *token)
                                 : fmt::format("{} generated tokens", frames.size());
  const std::string needle =
      !view.needle ? ""
      : view.needle->end - view.needle->begin == 1
          ? fmt::format(" The needle is in chunk {}.", view.needle->begin)
          : fmt::format(" The needle is in chunks {} to {}.", view.needle->begin, view.needle->end - 1);
  Svg svg(kLeft + kWidth + 16, kTop + height + kBottom, "Chunks that heads select",
          fmt::format("{} layers of {} heads of {} against {} chunks of the text, for {}.{}",
                      view.header.n_layers, view.header.n_heads, view.header.model, n_columns, what, needle));
  svg.Text(kLeft, 18, fmt::format("{}, {}", view.header.model, view.header.attention), {.bold = true});
  svg.Text(kLeft, 34, fmt::format("{}; {} tokens", what, view.edges.back()), {.size = 11});

  svg.Path(Runs(shades, 1, n_columns), kSeen, kLeft, kTop, column_width, row_height);
  for (std::size_t i = 0; i < kShades.size(); ++i) {
    svg.Path(Runs(shades, static_cast<uint8_t>(i + 2), n_columns), kShades[i], kLeft, kTop, column_width,
             row_height);
  }
  svg.Outline(kLeft, kTop, kWidth, height, kInk, 1);
  if (view.needle) {
    svg.Outline(kLeft + view.needle->begin * column_width - 1, kTop - 1,
                (view.needle->end - view.needle->begin) * column_width + 2, height + 2, kNeedle, 2);
  }

  // Axes: at most eleven layers, at most nine positions.
  const double layer_height = height / static_cast<double>(view.header.n_layers);
  const int64_t every = std::max<int64_t>(1, (view.header.n_layers + 9) / 10);
  for (int64_t layer = 0; layer < view.header.n_layers; layer += every) {
    const double y = kTop + (static_cast<double>(layer) + 0.5) * layer_height;
    svg.Line(kLeft - 4, y, kLeft, y, kInk);
    svg.Text(kLeft - 7, y + 4, fmt::format("{}", layer), {.anchor = "end", .size = 11});
  }
  svg.Text(16, kTop + height / 2, "layer (heads within)", {.anchor = "middle", .turn = -90});
  for (int i = 0; i <= 8; ++i) {
    const std::size_t column = static_cast<std::size_t>(i) * n_columns / 8;
    const double x = kLeft + static_cast<double>(column) * column_width;
    svg.Line(x, kTop + height, x, kTop + height + 4, kInk);
    svg.Text(x, kTop + height + 17, fmt::format("{}", view.edges[column]), {.anchor = "middle", .size = 11});
  }
  svg.Text(kLeft + kWidth / 2, kTop + height + 34, "position in the text (tokens)", {.anchor = "middle"});

  const double y = kTop + height + 50;
  double x = kLeft;
  const auto key = [&](const char* colour, const std::string& text) {
    svg.Rect(x, y, 14, 12, colour);
    svg.Text(x + 19, y + 10, text, {.size = 11});
    x += 34 + 6.2 * static_cast<double>(text.size());
  };
  if (frames.size() == 1) {
    key(kShades[3], "selected");
  } else {
    const std::array<const char*, 4> names = {"up to 25% of tokens", "50%", "75%", "100%"};
    for (std::size_t i = 0; i < kShades.size(); ++i) key(kShades[i], names[i]);
  }
  key(kSeen, "seen without a choice");
  if (view.needle) {
    svg.Outline(x, y, 14, 12, kNeedle, 2);
    svg.Text(x + 19, y + 10, "holds the needle", {.size = 11});
  }
  return svg.Standalone();
}

}  // namespace longheads
