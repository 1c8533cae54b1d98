#include "report/selection_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "report/assets.h"
#include "report/html.h"

namespace longheads {
namespace {

void PutNumber(uint64_t x, std::string& bytes) {
  while (x >= 0x80) {
    bytes.push_back(static_cast<char>(x | 0x80));
    x >>= 7;
  }
  bytes.push_back(static_cast<char>(x));
}

void PutFloat(float x, std::string& bytes) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(bits >> shift));
}

// What selection_page.js reads, for each head of a frame: a number, 2 n + 1 where its n cells have scores,
// then those scores' least and greatest; and for each cell how far it lies behind the one before it, its
// columns, and a byte. The byte is 0 where the cell was seen without a choice, else 1 .. 255 from the least
// score to the greatest, or in a frame of the prompt its share of the tokens.
void PutHead(const std::vector<ViewCell>& cells, bool prompt, std::string& bytes) {
  float least = std::numeric_limits<float>::infinity();
  float greatest = -least;
  for (const ViewCell& cell : cells) {
    if (prompt || !std::isfinite(cell.score)) continue;
    least = std::min(least, cell.score);
    greatest = std::max(greatest, cell.score);
  }
  const bool scored = least <= greatest;
  PutNumber(2 * cells.size() + (scored ? 1 : 0), bytes);
  if (scored) {
    PutFloat(least, bytes);
    PutFloat(greatest, bytes);
  }
  const auto level = [&](const ViewCell& cell) {
    if (prompt) return 1 + std::lround(254 * cell.share);
    if (!cell.chosen) return 0l;
    if (!scored || !(cell.score > least)) return scored ? 1l : 255l;
    if (!(greatest - least < std::numeric_limits<float>::infinity())) return 255l;
    return 1 + std::lround(254 * std::min(1.0f, (cell.score - least) / (greatest - least)));
  };
  int32_t next = 0;
  for (const ViewCell& cell : cells) {
    PutNumber(static_cast<uint64_t>(cell.column - next), bytes);
    PutNumber(static_cast<uint64_t>(cell.n), bytes);
    bytes.push_back(static_cast<char>(level(cell)));
    next = cell.column + cell.n;
  }
}

std::string ColumnName(const SelectionView& view, int64_t column) {
  const auto c = static_cast<std::size_t>(column);
  return fmt::format("{}\u2013{}", view.edges[c], view.edges[c + 1] - 1);
}

// How often heads chose each column, over all tokens; where nothing is chosen, how often they saw it.
struct Popularity {
  std::vector<int64_t> times;
  std::vector<int64_t> n_heads;  // that did so at least once
  bool chosen = false;
};

Popularity CountChoices(const SelectionView& view) {
  Popularity result;
  const auto any_choice = [](const auto& cells) {
    return std::ranges::any_of(cells, [](const ViewCell& cell) { return cell.chosen; });
  };
  result.chosen = std::ranges::any_of(
      view.frames, [&](const ViewFrame& frame) { return std::ranges::any_of(frame.heads, any_choice); });
  const std::size_t n = static_cast<std::size_t>(view.n_columns());
  result.times.assign(n, 0);
  result.n_heads.assign(n, 0);
  std::vector<char> by_head(n);
  for (std::size_t row = 0; row < static_cast<std::size_t>(view.n_rows()); ++row) {
    std::fill(by_head.begin(), by_head.end(), 0);
    for (const ViewFrame& frame : view.frames) {
      for (const ViewCell& cell : frame.heads[row]) {
        if (cell.chosen != result.chosen) continue;
        for (int32_t c = cell.column; c < cell.column + cell.n; ++c) {
          ++result.times[static_cast<std::size_t>(c)];
          by_head[static_cast<std::size_t>(c)] = 1;
        }
      }
    }
    for (std::size_t c = 0; c < n; ++c) result.n_heads[c] += by_head[c];
  }
  return result;
}

// The page in words: what a reader without pictures, or on paper, gets of it.
std::string TopTable(const SelectionView& view) {
  const Popularity popularity = CountChoices(view);
  std::vector<std::size_t> order(popularity.times.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return popularity.times[a] > popularity.times[b]; });
  const char* const verb = popularity.chosen ? "chosen" : "seen";
  const double most = static_cast<double>(view.n_rows()) * static_cast<double>(view.frames.size());
  std::string out = fmt::format(
      "<section><h2>Most {0} chunks</h2>\n<div "
      "class=\"scroll\"><table><thead><tr><th>Chunk</th><th>Tokens</th>"
      "<th>Share of tokens and heads</th><th>Heads</th><th>Begins</th></tr></thead><tbody>\n",
      verb);
  constexpr std::size_t kRows = 12;
  for (std::size_t i = 0; i < std::min(kRows, order.size()); ++i) {
    const std::size_t c = order[i];
    if (popularity.times[c] == 0) break;
    const bool needle = view.needle && static_cast<int64_t>(c) >= view.needle->begin &&
                        static_cast<int64_t>(c) < view.needle->end;
    std::string begins = view.column_texts[c].substr(0, 400);
    std::size_t n_characters = 0, at = 0;
    while (at < begins.size() && n_characters < 60) {
      ++at;
      while (at < begins.size() && (static_cast<unsigned char>(begins[at]) & 0xc0) == 0x80) ++at;
      ++n_characters;
    }
    begins.resize(at);
    out += fmt::format("<tr{}><td>{}{}</td><td>{}</td><td>{:.1f}%</td><td>{} of {}</td><td>{}</td></tr>\n",
                       needle ? " class=\"needle\"" : "", c, needle ? " (needle)" : "",
                       ColumnName(view, static_cast<int64_t>(c)),
                       100 * static_cast<double>(popularity.times[c]) / std::max(1.0, most),
                       popularity.n_heads[c], view.n_rows(), EscapeHtml(begins));
  }
  return out + "</tbody></table></div></section>\n";
}

std::string Facts(const SelectionView& view) {
  const TraceHeader& h = view.header;
  std::string out = "<dl class=\"facts\">\n";
  const auto fact = [&](std::string_view name, std::string_view value) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, EscapeHtml(value));
  };
  fact("Model", h.model);
  fact("Method", h.attention);
  fact("Heads",
       fmt::format("{} layers \u00d7 {} heads ({} key/value heads)", h.n_layers, h.n_heads, h.n_kv_heads));
  fact("Prompt", fmt::format("{} tokens (window {})", h.prompt_tokens, h.window));
  fact("Chunks",
       h.blocks ? fmt::format("{} tokens{}", h.blocks->tokens,
                              h.blocks->first > 0 ? fmt::format(", from token {} on", h.blocks->first) : "")
                : std::string("none: this method does not choose"));
  fact("Arithmetic", fmt::format("{}, keys and values {}", h.compute, h.kv_type));
  if (view.needle) fact("Needle", view.needle->text);
  fact("Answer", view.answer);
  fact("Written by", h.program);
  return out + "</dl>\n";
}

}  // namespace

std::string SelectionPage(const SelectionView& view) {
  nlohmann::json frames = nlohmann::json::array();
  std::string bytes;
  for (const std::vector<ViewFrame>* const part : {&view.prompt_frames, &view.frames}) {
    for (const ViewFrame& frame : *part) {
      frames.push_back({{"begin", frame.token_begin},
                        {"end", frame.token_end},
                        {"prompt", frame.prompt},
                        {"text", frame.text},
                        {"next", frame.next}});
      for (const std::vector<ViewCell>& head : frame.heads) PutHead(head, frame.prompt, bytes);
    }
  }
  nlohmann::json meta = {{"layers", view.header.n_layers},
                         {"heads", view.header.n_heads},
                         {"edges", view.edges},
                         {"texts", view.column_texts},
                         {"frames", frames},
                         {"prompt_tokens", view.header.prompt_tokens},
                         {"needle", nullptr},
                         {"data", Base64(bytes)}};
  if (view.needle) {
    meta["needle"] = {{"begin", view.needle->begin}, {"end", view.needle->end}, {"text", view.needle->text}};
  }

  HtmlPage page{.title = fmt::format("What heads chose: {}", view.header.attention),
                .style = std::string(assets::kPageCss) + std::string(assets::kSelectionPageCss),
                .body = {},
                .script = std::string(assets::kSelectionPageJs)};
  page.body = "<main>\n<h1>What each head chose to see</h1>\n" + Facts(view);
  if (view.n_left_out > 0) {
    page.body += fmt::format(
        "<p class=\"note\">The first {} of {} records of the trace: with the others the page would be too "
        "large.</p>\n",
        view.frames.size() + view.prompt_frames.size(),
        view.frames.size() + view.prompt_frames.size() + static_cast<std::size_t>(view.n_left_out));
  }
  page.body +=
      "<noscript><p class=\"note\">The map below needs JavaScript; the table after it does "
      "not.</p></noscript>\n";
  page.body += std::string(assets::kSelectionPageHtml);
  page.body += TopTable(view);
  page.body += "</main>\n" + JsonBlock("trace", meta);
  return PageHtml(page);
}

}  // namespace longheads
