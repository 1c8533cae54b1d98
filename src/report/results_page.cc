#include "report/results_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/csv.h"
#include "report/assets.h"
#include "report/chart.h"
#include "report/html.h"
#include "report/paper_tables.h"

namespace longheads {
namespace {

// What a table is laid out by: the length where there is one, else the first name of the cells.
std::string ColumnsOf(const Experiment& experiment) {
  if (experiment.Has("length")) return "length";
  for (const Observation& one : experiment.observations) {
    if (!one.cell.empty()) return one.cell.begin().key();
  }
  return "";
}

std::string Number(const Experiment& experiment, double value) {
  if (experiment.measure.unit == "share") return fmt::format("{:.0f}", 100 * value);
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

// A cell of a table: what it says, and in small what qualifies it.
struct TableCell {
  std::string text;
  std::string small = {};
};

TableCell EstimateCell(const Experiment& experiment, const Estimate& estimate) {
  TableCell cell{.text = "\u2013"};
  if (estimate.n > 0) {
    cell.text = Number(experiment, estimate.value);
    if (estimate.interval) {
      cell.small = fmt::format("{}\u2013{}, ", Number(experiment, estimate.interval->first),
                               Number(experiment, estimate.interval->second));
    }
    cell.small += fmt::format("n = {}", estimate.n);
  }
  if (estimate.failed > 0) {
    cell.small += fmt::format("{}{} failed", cell.small.empty() ? "" : ", ", estimate.failed);
  }
  return cell;
}

std::string TableHtml(const std::vector<std::vector<TableCell>>& rows) {
  std::string out = "<div class=\"scroll\"><table>\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += i == 0 ? "<thead><tr>" : "<tr>";
    for (std::size_t c = 0; c < rows[i].size(); ++c) {
      const TableCell& cell = rows[i][c];
      const char* const tag = i == 0 || c == 0 ? "th" : "td";
      const char* const scope = i == 0 ? " scope=\"col\"" : c == 0 ? " scope=\"row\"" : "";
      out += fmt::format("<{}{}>{}", tag, scope, EscapeHtml(cell.text));
      if (!cell.small.empty()) out += fmt::format(" <small>{}</small>", EscapeHtml(cell.small));
      out += fmt::format("</{}>", tag);
    }
    out += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string TableHtml(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<TableCell>> cells;
  for (const auto& row : rows) {
    cells.emplace_back();
    for (const std::string& text : row) cells.back().push_back({.text = text});
  }
  return TableHtml(cells);
}

// "passkey-free-answers-right"
std::string FileName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

class Page {
 public:
  Page(const Results& results, const ReportOrigin& origin) : results_(results), origin_(origin) {}

  Report Make() {
    Head();
    for (std::size_t i = 0; i < results_.experiments.size(); ++i) Section(i);
    report_.page = PageHtml({.title = origin_.title,
                             .style = std::string(assets::kPageCss) + std::string(assets::kResultsPageCss),
                             .body = "<main>\n" + body_ + "</main>\n",
                             .script = ""});
    return std::move(report_);
  }

 private:
  void Head() {
    body_ += fmt::format("<h1>{}</h1>\n", EscapeHtml(origin_.title));
    body_ += fmt::format("<dl class=\"facts\"><div><dt>Report by</dt><dd>{}</dd></div>\n",
                         EscapeHtml(origin_.program));
    body_ += fmt::format("<div><dt>made on</dt><dd>{}</dd></div></dl>\n", EscapeHtml(origin_.machine));
    int64_t failed = 0, n = 0;
    for (const Experiment& experiment : results_.experiments) {
      for (const Observation& one : experiment.observations) {
        ++n;
        failed += one.failed.empty() ? 0 : 1;
      }
    }
    body_ += fmt::format(
        "<p>{} results. Intervals are of 95%: of shares Wilson's, where several samples ask about one "
        "document by "
        "document; of perplexities the mean \u00b1 1.96 standard errors. Where intervals overlap, a "
        "difference may "
        "be chance.</p>\n",
        n);
    if (failed > 0) {
      body_ += fmt::format("<p class=\"note\">{} samples failed. They count as nothing, not as wrong.</p>\n",
                           failed);
    }
    for (const std::string& note : results_.notes) {
      body_ += fmt::format("<p class=\"note\">{}</p>\n", EscapeHtml(note));
    }
    body_ += "<nav aria-label=\"Experiments\"><ul>\n";
    for (std::size_t i = 0; i < results_.experiments.size(); ++i) {
      body_ += fmt::format("<li><a href=\"#e{}\">{}</a></li>\n", i, EscapeHtml(Title(i)));
    }
    body_ += "</ul></nav>\n";
  }

  // Task and measure, and of the settings what tells it from others of the same kind.
  std::string Title(std::size_t index) const {
    const Experiment& own = results_.experiments[index];
    std::string title = fmt::format("{}: {}", own.task, own.measure.name);
    for (const std::pair<std::string, std::string>& setting : own.settings) {
      const bool varies = std::ranges::any_of(results_.experiments, [&](const Experiment& other) {
        if (other.task != own.task || other.measure.name != own.measure.name) return false;
        return std::ranges::find(other.settings, setting) == other.settings.end();
      });
      if (varies) title += fmt::format(", {} {}", setting.first, setting.second);
    }
    return title;
  }

  std::string Stem(std::size_t index) const {
    return fmt::format(
        "{}-{}", index + 1,
        FileName(results_.experiments[index].task + " " + results_.experiments[index].measure.name));
  }

  void Figure(const std::string& name, const Svg& svg) {
    body_ += "<figure>\n" + svg.Inline() + "</figure>\n";
    report_.files.emplace_back(name + ".svg", svg.Standalone());
  }

  void Section(std::size_t index) {
    const Experiment& e = results_.experiments[index];
    const std::string columns = ColumnsOf(e);
    const std::vector<Json> values = columns.empty() ? std::vector<Json>{} : e.CellValues(columns);
    body_ += fmt::format("<section id=\"e{}\">\n<h2>{}</h2>\n", index, EscapeHtml(Title(index)));
    if (columns == "length" && values.size() > 1) Lines(Stem(index), ScoreChart(index, values));
    Table(index, columns, values);
    Papers(index);
    if (e.Has("length") && e.Has("depth") && e.measure.unit == "share") HeatMaps(index);
    if (columns == "length" && values.size() > 1) More(index, values);
    Settings(e);
    body_ += "</section>\n";
  }

  void Lines(const std::string& name, LineChart chart) {
    const std::vector<LineChart> charts = SplitLines(std::move(chart));
    for (std::size_t i = 0; i < charts.size(); ++i) {
      Figure(PartName(name, i, charts.size()), DrawLines(charts[i]));
    }
  }

  LineChart EmptyChart(const std::string& title, const std::string& y_label,
                       const std::vector<Json>& lengths) const {
    LineChart chart{.title = title,
                    .x_label = "length of the text (tokens)",
                    .y_label = y_label,
                    .x_names = {},
                    .xs = {},
                    .describe = {},
                    .lines = {}};
    for (const Json& length : lengths) {
      chart.xs.push_back(length.get<double>());
      chart.x_names.push_back(CellName("length", length));
    }
    return chart;
  }

  LineChart ScoreChart(std::size_t index, const std::vector<Json>& lengths) const {
    const Experiment& e = results_.experiments[index];
    const bool share = e.measure.unit == "share";
    LineChart chart = EmptyChart(Title(index) + " by length", share ? "%" : e.measure.unit, lengths);
    chart.share = share;
    chart.log_y = e.measure.unit == "perplexity";
    for (const std::string& method : e.Methods()) {
      ChartLine line{.name = method, .points = {}};
      for (const Json& length : lengths) {
        const Estimate estimate = EstimateOf(e, Select(e, method, "length", length));
        if (estimate.n == 0) continue;
        line.points.push_back(
            {.x = length.get<double>(), .y = estimate.value, .interval = estimate.interval});
      }
      if (!line.points.empty()) chart.lines.push_back(std::move(line));
    }
    return chart;
  }

  void Table(std::size_t index, const std::string& columns, const std::vector<Json>& values) {
    const Experiment& e = results_.experiments[index];
    std::vector<std::vector<TableCell>> rows = {{{.text = "method"}}};
    for (const Json& value : values) rows[0].push_back({.text = CellName(columns, value)});
    if (values.empty()) rows[0].push_back({.text = "score"});
    std::string csv =
        fmt::format("attn,{}n,failed,value,low,high\n", columns.empty() ? "" : CsvField(columns) + ",");
    for (const std::string& method : e.Methods()) {
      rows.push_back({{.text = method}});
      const auto add = [&](const std::vector<const Observation*>& selected, const std::string& column) {
        const Estimate estimate = EstimateOf(e, selected);
        rows.back().push_back(EstimateCell(e, estimate));
        csv += fmt::format("{},{}{},{},", CsvField(method), columns.empty() ? "" : CsvField(column) + ",",
                           estimate.n, estimate.failed);
        csv += estimate.n == 0 ? "," : fmt::format("{:.6g},", estimate.value);
        csv += estimate.interval
                   ? fmt::format("{:.6g},{:.6g}\n", estimate.interval->first, estimate.interval->second)
                   : ",\n";
      };
      for (const Json& value : values) {
        add(Select(e, method, columns, value), value.is_string() ? value.get<std::string>() : value.dump());
      }
      if (values.empty()) add(Select(e, method), "");
    }
    const char* const unit = e.measure.unit == "share" ? ", in percent" : "";
    body_ += fmt::format("<h3>{}{}</h3>\n", EscapeHtml(e.measure.name), unit);
    body_ += TableHtml(rows);
    report_.files.emplace_back(Stem(index) + ".csv", csv);
  }

  void Papers(std::size_t index) {
    const Experiment& e = results_.experiments[index];
    if (!papers_shown_.insert(e.task).second) return;
    const std::vector<PaperTable> tables = PaperTablesOf(e.task);
    if (tables.empty()) return;
    body_ +=
        "<details open><summary>The papers\u2019 numbers</summary>\n<p>Of other models: orders and gaps "
        "compare, "
        "values do not.</p>\n<div class=\"papers\">\n";
    for (const PaperTable& table : tables) {
      body_ += fmt::format("<div><h4>{}</h4>\n{}</div>\n", EscapeHtml(table.title), TableHtml(table.rows));
    }
    body_ += "</div></details>\n";
  }

  void HeatMaps(std::size_t index) {
    const Experiment& e = results_.experiments[index];
    body_ += "<h3>By length and depth, in percent</h3>\n<div class=\"maps\">\n";
    std::size_t number = 0;
    for (const std::string& method : e.Methods()) {
      // What this method was measured on: others may have other depths.
      const std::vector<Json> lengths = e.CellValues("length", method),
                              depths = e.CellValues("depth", method);
      const double unit = depths.back().is_number() && depths.back().get<double>() <= 1 ? 100 : 1;
      HeatMap map{.title = method,
                  .x_label = "length (tokens)",
                  .y_label = "depth (%)",
                  .x_names = {},
                  .y_names = {},
                  .values = {},
                  .describe = {}};
      for (const Json& length : lengths) map.x_names.push_back(CellName("length", length));
      std::string csv = "attn,length,depth,n,failed,value\n";
      for (const Json& depth : depths) {
        map.y_names.push_back(depth.is_number() ? fmt::format("{:.0f}", unit * depth.get<double>())
                                                : CellName("depth", depth));
        map.values.emplace_back();
        for (const Json& length : lengths) {
          std::vector<const Observation*> selected = Select(e, method, "length", length);
          std::erase_if(selected, [&](const Observation* one) { return one->cell["depth"] != depth; });
          const Estimate estimate = EstimateOf(e, selected);
          map.values.back().push_back(estimate.n > 0 ? std::optional(estimate.value) : std::nullopt);
          if (estimate.n + estimate.failed == 0) continue;
          csv += fmt::format("{},{},{},{},{},{}\n", CsvField(method), length.dump(), depth.dump(), estimate.n,
                             estimate.failed, estimate.n > 0 ? fmt::format("{:.6g}", estimate.value) : "");
          if (estimate.n > 0) {
            map.describe += fmt::format("{} at depth {}%: {:.0f}%; ", CellName("length", length),
                                        map.y_names.back(), 100 * estimate.value);
          }
        }
      }
      const std::string name = fmt::format("{}-map-{}-{}", Stem(index), ++number, FileName(method));
      Figure(name, DrawHeatMap(map));
      report_.files.emplace_back(name + ".csv", csv);
    }
    body_ += "</div>\n";
  }

  // Time, and what else was found as numbers: by length, without intervals.
  void More(std::size_t index, const std::vector<Json>& lengths) {
    const Experiment& e = results_.experiments[index];
    std::set<std::string> names;
    for (const Observation& one : e.observations) {
      for (const auto& item : one.values.items()) {
        if (item.value().is_number()) names.insert(item.key());
      }
    }
    body_ += "<details><summary>Time, and what else was measured</summary>\n";
    const auto draw = [&](const std::string& name, const auto& value_of) {
      LineChart chart = EmptyChart(fmt::format("{}: {} by length", e.task, name), name, lengths);
      for (const std::string& method : e.Methods()) {
        ChartLine line{.name = method, .points = {}};
        for (const Json& length : lengths) {
          double sum = 0;
          int64_t n = 0;
          for (const Observation* const one : Select(e, method, "length", length)) {
            const std::optional<double> value = one->failed.empty() ? value_of(*one) : std::nullopt;
            if (!value) continue;
            sum += *value;
            ++n;
          }
          if (n > 0) line.points.push_back({.x = length.get<double>(), .y = sum / static_cast<double>(n)});
        }
        if (!line.points.empty()) chart.lines.push_back(std::move(line));
      }
      Lines(fmt::format("{}-{}", Stem(index), FileName(name)), std::move(chart));
    };
    std::set<int> threads;
    for (const Observation& one : e.observations) threads.insert(one.by.threads);
    body_ += fmt::format(
        "<p>Seconds are of a sample alone: what another sample had read before is not in them. They are of "
        "the "
        "machine as it was, with what else it did, on {} threads.</p>\n",
        fmt::join(threads, ", "));
    draw("seconds per sample", [](const Observation& one) { return std::optional(one.seconds); });
    for (const std::string& name : names) {
      draw(name, [&](const Observation& one) -> std::optional<double> {
        if (!one.values.contains(name) || !one.values[name].is_number()) return std::nullopt;
        return one.values[name].get<double>();
      });
    }
    body_ += "</details>\n";
  }

  void Settings(const Experiment& e) {
    body_ += "<details><summary>Configuration</summary>\n<dl class=\"facts\">\n";
    for (const auto& [name, value] : e.settings) {
      body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", EscapeHtml(name), EscapeHtml(value));
    }
    Origins(e, "measured by", &Provenance::program);
    Origins(e, "measured on", &Provenance::machine);
    body_ += "</dl></details>\n";
  }

  // All that its results name, in the order they come; nothing where all are older than that.
  void Origins(const Experiment& e, std::string_view name, std::string Provenance::*what) {
    std::vector<std::string> found;
    bool older = false;
    for (const Observation& one : e.observations) {
      const std::string& value = one.by.*what;
      older = older || value.empty();
      if (!value.empty() && std::ranges::find(found, value) == found.end()) found.push_back(value);
    }
    if (found.empty()) return;
    if (older) found.push_back("of some results not recorded");
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name,
                         EscapeHtml(fmt::format("{}", fmt::join(found, "; "))));
  }

  const Results& results_;
  const ReportOrigin& origin_;
  std::string body_;
  Report report_;
  std::set<std::string> papers_shown_;
};

}  // namespace

Report MakeReport(const Results& results, const ReportOrigin& origin) { return Page(results, origin).Make(); }

}  // namespace longheads
