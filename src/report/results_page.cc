#include "report/results_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/json.h"
#include "eval/ablation.h"
#include "eval/infinitebench.h"
#include "eval/longbench.h"
#include "report/ablation_labels.h"
#include "report/assets.h"
#include "report/chart.h"
#include "report/found_tables.h"
#include "report/found_values.h"
#include "report/html.h"
#include "report/html_table.h"
#include "report/paper_tables.h"

namespace longheads {
namespace {

std::string Number(const Experiment& experiment, double value) {
  if (experiment.measure.unit == "share") return PercentText(value);
  if (value >= kMostValue) return "> 1e300";
  return value >= 1000 && value < 1e9 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

// What a setting stands for that holds the hash of a text that tools/eval/text.sh writes; "" of others.
std::string KnownText(const std::string& setting) {
  constexpr std::pair<std::string_view, std::string_view> kTexts[] = {
      {"b99d3b92144be4a8", "Jane Austen's novels, of Debian's package r-cran-janeaustenr"},
      {"21be438cea8082f0", "the King James Bible, of Debian's package bible-kjv-text"}};
  for (const auto& [hash, name] : kTexts) {
    if (setting.find(hash) != std::string::npos) return fmt::format(" ({})", name);
  }
  return "";
}

// Of settings as long as a question, what they begin with.
std::string Shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "\u2026";
}

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

// Names of columns: data sets have the papers' labels beside their files' names.
TableCell ColumnHeader(const std::string& columns, const Json& value) {
  const std::string name = CellName(columns, value);
  TableCell header{.text = name};
  if (columns != "dataset") return header;
  const LongBenchDataset* const longbench = FindLongBench(name);
  const InfiniteBenchDataset* const infinitebench = FindInfiniteBench(name);
  const std::string_view label = longbench != nullptr       ? longbench->label
                                 : infinitebench != nullptr ? infinitebench->label
                                                            : std::string_view();
  if (label != name) header.small = label;
  return header;
}

// Means of data sets, each counting as much as the other, as papers average them; nothing where one has none.
std::optional<Estimate> AverageOf(const std::vector<Estimate>& estimates) {
  Estimate average;
  for (const Estimate& estimate : estimates) {
    if (estimate.n == 0) return std::nullopt;
    average.n += estimate.n;
    average.failed += estimate.failed;
    average.value += estimate.value / static_cast<double>(estimates.size());
  }
  return average;
}

std::vector<SampleScore> ScoresOf(const Experiment& experiment, const std::string& method) {
  std::vector<SampleScore> scores;
  for (const Observation& one : experiment.observations) {
    if (one.attention != method || !one.failed.empty() || one.ppl) continue;
    scores.push_back({.sample = one.sample, .document = one.document, .score = one.score});
  }
  return scores;
}

// LongHeads' variants among an experiment's methods, and their differences from their base.
class Variants {
 public:
  explicit Variants(const Experiment& experiment)
      : share_(experiment.measure.unit == "share"), labels_(AblationLabels(experiment.Methods())) {
    const auto base = std::ranges::find(labels_, "base", [](const auto& one) { return one.second; });
    if (base == labels_.end()) return;
    const std::vector<SampleScore> of_base = ScoresOf(experiment, base->first);
    for (const auto& [method, label] : labels_) {
      if (method == base->first) continue;
      const auto difference = DifferenceFromBase(ScoresOf(experiment, method), of_base, share_);
      if (difference) differences_.emplace(method, *difference);
    }
  }

  bool empty() const { return labels_.empty(); }
  const std::map<std::string, ScoreDifference>& differences() const { return differences_; }  // by method

  // A method as a row's name; a variant by the paper's name.
  TableCell MethodCell(const std::string& method) const {
    const auto label = labels_.find(method);
    return label == labels_.end() ? TableCell{.text = method}
                                  : TableCell{.text = label->second, .small = method};
  }
  TableCell DifferenceCell(const std::string& method) const {
    const auto found = differences_.find(method);
    if (found == differences_.end()) return {.text = "\u2013"};
    const ScoreDifference& difference = found->second;
    return {.text = Signed(difference.mean),
            .small = fmt::format("{} to {}, n = {}", Signed(difference.interval.low),
                                 Signed(difference.interval.high), difference.n_samples)};
  }

 private:
  std::string Signed(double value) const {
    return share_ ? fmt::format("{:+.1f}", 100 * value) : fmt::format("{:+.4g}", value);
  }

  bool share_;
  std::map<std::string, std::string> labels_;
  std::map<std::string, ScoreDifference> differences_;
};

// What a table of the experiment has cells for, depths counted one by one.
std::size_t CountCells(const Experiment& experiment) {
  std::set<std::pair<std::string, std::string>> cells;
  for (const Observation& one : experiment.observations) {
    cells.emplace(one.attention, JsonLine(one.cell));
  }
  return cells.size();
}

// As the papers' tables name them.
std::vector<std::string> PaperTasks(const Experiment& experiment) {
  std::vector<std::string> tasks = {experiment.task};
  if (!AblationLabels(experiment.Methods()).empty()) tasks.emplace_back("ablation");
  return tasks;
}

// For each of the papers' tasks the experiment that its tables stand at: the first of those with the most
// cells.
std::map<std::string, std::size_t> PaperPlaces(const std::vector<Experiment>& experiments) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < experiments.size(); ++i) {
    for (const std::string& task : PaperTasks(experiments[i])) {
      const auto [at, added] = places.emplace(task, i);
      if (!added && CountCells(experiments[i]) > CountCells(experiments[at->second])) at->second = i;
    }
  }
  return places;
}

class Page {
 public:
  Page(const Results& results, const ReportOrigin& origin)
      : results_(results), origin_(origin), paper_places_(PaperPlaces(results.experiments)) {}

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
        "document by document; of perplexities the mean \u00b1 1.96 standard errors; of other scores "
        "\u00b1 Student's t of them. Where intervals overlap, a difference may be chance.</p>\n",
        n);
    if (failed > 0) {
      body_ += fmt::format("<p class=\"note\">{} results failed. They count as nothing, not as wrong.</p>\n",
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
    return fmt::format("{}: {}{}", own.task, own.measure.name, Apart(index));
  }

  std::string Apart(std::size_t index) const {
    const Experiment& own = results_.experiments[index];
    std::string title;
    for (const std::pair<std::string, std::string>& setting : own.settings) {
      const bool varies = std::ranges::any_of(results_.experiments, [&](const Experiment& other) {
        if (other.task != own.task || other.measure.name != own.measure.name) return false;
        return std::ranges::find(other.settings, setting) == other.settings.end();
      });
      if (varies) title += fmt::format(", {} {}", setting.first, Shortened(setting.second, 60));
    }
    return title;
  }

  std::string Stem(std::size_t index) const {
    return fmt::format(
        "{}-{}", index + 1,
        FileName(results_.experiments[index].task + " " + results_.experiments[index].measure.name));
  }

  // Names that are alike but for their punctuation get numbers.
  void File(const std::string& name, const std::string& ending, std::string contents) {
    std::string own = name + ending;
    for (int i = 2; !names_.insert(own).second; ++i) own = fmt::format("{}-{}{}", name, i, ending);
    report_.files.emplace_back(std::move(own), std::move(contents));
  }

  void Figure(const std::string& name, const Svg& svg) {
    body_ += "<figure>\n" + svg.Inline() + "</figure>\n";
    File(name, ".svg", svg.Standalone());
  }

  void Section(std::size_t index) {
    const Experiment& e = results_.experiments[index];
    body_ += fmt::format("<section id=\"e{}\">\n<h2>{}</h2>\n", index, EscapeHtml(Title(index)));
    const std::string columns = ColumnsOf(e);
    const std::vector<Part> parts = PartsOf(e);
    std::vector<std::vector<std::string>> scores;
    for (const Part& part : parts) PartScores(index, part, columns, scores);
    File(Stem(index), ".csv", TableCsv(scores));
    Differences(index, parts);
    Papers(index);
    for (const Part& part : parts) {
      if (part.whole) HeatMaps(index, part);
    }
    if (!SharesSamples(index)) Found(index, parts, columns);
    Settings(e);
    body_ += "</section>\n";
  }

  // Whether an experiment before it is of the same samples, judged by another measure.
  bool SharesSamples(std::size_t index) const {
    const Experiment& own = results_.experiments[index];
    return std::any_of(
        results_.experiments.begin(), results_.experiments.begin() + static_cast<std::ptrdiff_t>(index),
        [&](const Experiment& other) { return other.task == own.task && other.settings == own.settings; });
  }

  // As drawings have it, in one line.
  std::string PartTitle(std::size_t index, const Part& part, const std::string& measure) const {
    const std::string label = part.label();
    return fmt::format("{}: {}{}{}", part.experiment.task, measure, label.empty() ? "" : ", " + label,
                       Shortened(Apart(index), 48));
  }
  std::string PartStem(std::size_t index, const Part& part) const {
    const std::string label = FileName(part.label());
    return label.empty() ? Stem(index) : fmt::format("{}-{}", Stem(index), label);
  }

  void PartScores(std::size_t index, const Part& part, const std::string& columns,
                  std::vector<std::vector<std::string>>& csv) {
    const Experiment& e = part.experiment;
    const std::vector<Json> values = ColumnValues(e, columns);
    const char* const unit = e.measure.unit == "share" ? ", in percent" : "";
    const std::string label = part.label();
    body_ += fmt::format("<h3>{}{}{}</h3>\n", EscapeHtml(e.measure.name), unit,
                         label.empty() ? "" : EscapeHtml(": " + label));
    if (Curves(columns, values))
      Lines(PartStem(index, part), ScoreChart(PartTitle(index, part, e.measure.name), e, values));
    Table(part, columns, values, csv);
  }

  static bool Curves(const std::string& columns, const std::vector<Json>& values) {
    return columns == "length" && std::ranges::count_if(values, &Json::is_number) > 1;
  }

  void Lines(const std::string& name, LineChart chart) {
    const std::vector<LineChart> charts = SplitLines(std::move(chart));
    for (std::size_t i = 0; i < charts.size(); ++i) {
      Figure(PartName(name, i, charts.size()), DrawLines(charts[i]));
    }
  }

  static LineChart ScoreChart(const std::string& title, const Experiment& e,
                              const std::vector<Json>& lengths) {
    const bool share = e.measure.unit == "share";
    LineChart chart = LengthChart(title + " by length", share ? "%" : e.measure.unit, lengths);
    chart.share = share;
    chart.log_y = e.measure.unit == "perplexity";
    for (const std::string& method : e.Methods()) {
      ChartLine line{.name = method, .points = {}};
      for (const Json& length : lengths) {
        if (!length.is_number()) continue;
        const Estimate estimate = EstimateOf(e, Select(e, method, "length", length));
        if (estimate.n == 0) continue;
        line.points.push_back(
            {.x = length.get<double>(), .y = estimate.value, .interval = estimate.interval});
      }
      if (!line.points.empty()) chart.lines.push_back(std::move(line));
    }
    return chart;
  }

  void Table(const Part& part, const std::string& columns, const std::vector<Json>& values,
             std::vector<std::vector<std::string>>& csv) {
    const Experiment& e = part.experiment;
    const bool averaged = columns == "dataset" && values.size() > 1;
    const std::vector<std::string> methods = e.Methods();
    const Variants variants(e);
    std::vector<std::vector<TableCell>> rows = {{{.text = variants.empty() ? "method" : "variant"}}};
    for (const Json& value : values) rows[0].push_back(ColumnHeader(columns, value));
    if (values.empty()) rows[0].push_back({.text = "score"});
    if (averaged) rows[0].push_back({.text = "average"});
    const bool compared = !variants.differences().empty();
    if (compared) rows[0].push_back({.text = "difference", .small = "from the base"});
    if (csv.empty()) {
      csv.push_back({"attn"});
      for (const auto& item : part.cell.items()) csv[0].push_back(item.key());
      if (!columns.empty()) csv[0].push_back(columns);
      for (const char* const name : {"n", "failed", "value", "low", "high"}) csv[0].emplace_back(name);
    }
    for (const std::string& method : methods) {
      rows.push_back({variants.MethodCell(method)});
      const auto add = [&](const Estimate& estimate, const std::string& column) {
        rows.back().push_back(EstimateCell(e, estimate));
        csv.push_back({method});
        for (const auto& item : part.cell.items()) csv.back().push_back(CellText(item.value()));
        if (!columns.empty()) csv.back().push_back(column);
        for (const int64_t count : {estimate.n, estimate.failed}) csv.back().push_back(std::to_string(count));
        csv.back().push_back(estimate.n > 0 ? CsvNumber(estimate.value) : "");
        csv.back().push_back(estimate.interval ? CsvNumber(estimate.interval->first) : "");
        csv.back().push_back(estimate.interval ? CsvNumber(estimate.interval->second) : "");
      };
      std::vector<Estimate> estimates;
      for (const Json& value : values) {
        estimates.push_back(EstimateOf(e, Select(e, method, columns, value)));
        add(estimates.back(), CellText(value));
      }
      if (values.empty()) add(EstimateOf(e, Select(e, method)), "");
      const std::optional<Estimate> average = averaged ? AverageOf(estimates) : std::nullopt;
      if (average) add(*average, "average");
      if (averaged && !average) rows.back().push_back({.text = "\u2013"});
      if (compared) rows.back().push_back(variants.DifferenceCell(method));
    }
    body_ += TableHtml(rows);
    if (!compared) return;
    body_ +=
        "<p class=\"below\">A difference is of all samples of the row that the base has too. Its interval "
        "is of shares Newcombe\u2019s of paired proportions, of other scores the mean \u00b1 "
        "Student\u2019s t of its standard error.</p>\n";
  }

  // The tables' differences as a file, where there are any.
  void Differences(std::size_t index, const std::vector<Part>& parts) {
    std::vector<std::vector<std::string>> csv;
    for (const Part& part : parts) {
      const Variants variants(part.experiment);
      for (const std::string& method : part.experiment.Methods()) {
        const auto found = variants.differences().find(method);
        if (found == variants.differences().end()) continue;
        const ScoreDifference& difference = found->second;
        if (csv.empty()) {
          csv.push_back({"attn"});
          for (const auto& item : part.cell.items()) csv[0].push_back(item.key());
          for (const char* const name : {"n", "difference", "low", "high"}) csv[0].emplace_back(name);
        }
        csv.push_back({method});
        for (const auto& item : part.cell.items()) csv.back().push_back(CellText(item.value()));
        csv.back().push_back(std::to_string(difference.n_samples));
        for (const double value : {difference.mean, difference.interval.low, difference.interval.high}) {
          csv.back().push_back(CsvNumber(value));
        }
      }
    }
    if (!csv.empty()) File(Stem(index) + "-differences", ".csv", TableCsv(csv));
  }

  // Each task's once.
  void Papers(std::size_t index) {
    std::vector<PaperTable> tables;
    for (const std::string& task : PaperTasks(results_.experiments[index])) {
      if (paper_places_.at(task) == index) std::ranges::move(PaperTablesOf(task), std::back_inserter(tables));
    }
    if (tables.empty()) return;
    body_ +=
        "<details open><summary>The papers\u2019 numbers</summary>\n<p>Of other models: orders and gaps "
        "compare, values do not.</p>\n<div class=\"papers\">\n";
    for (const PaperTable& table : tables) {
      std::vector<std::vector<TableCell>> rows;
      for (const auto& row : table.rows) {
        rows.emplace_back();
        for (const std::string& text : row) {
          rows.back().push_back(rows.size() == 1 ? ColumnHeader("dataset", text) : TableCell{.text = text});
        }
      }
      body_ += fmt::format("<div{}><h4>{}</h4>\n{}", table.rows[0].size() > 9 ? " class=\"wide\"" : "",
                           EscapeHtml(table.title), TableHtml(rows));
      if (!table.note.empty()) body_ += fmt::format("<p class=\"below\">{}</p>\n", EscapeHtml(table.note));
      body_ += "</div>\n";
      // Some stand beside several experiments.
      const std::string name = "paper-" + FileName(table.title);
      if (!names_.contains(name + ".csv")) File(name, ".csv", TableCsv(table.rows));
    }
    body_ += "</div></details>\n";
  }

  void HeatMaps(std::size_t index, const Part& part) {
    Experiment e = part.experiment;
    std::erase_if(e.observations, [](const Observation& one) {
      return !one.cell.contains("length") || !one.cell.contains("depth");
    });
    if (e.observations.empty() || e.measure.unit != "share") return;
    const std::string label = part.label();
    body_ += fmt::format("<h3>By length and depth, in percent{}</h3>\n<div class=\"maps\">\n",
                         label.empty() ? "" : EscapeHtml(": " + label));
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
      std::vector<std::vector<std::string>> csv = {{"attn", "length", "depth", "n", "failed", "value"}};
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
          csv.push_back({method, length.dump(), depth.dump(), std::to_string(estimate.n),
                         std::to_string(estimate.failed), estimate.n > 0 ? CsvNumber(estimate.value) : ""});
          if (estimate.n > 0) {
            map.describe += fmt::format("{} at depth {}%: {}%; ", CellName("length", length),
                                        map.y_names.back(), PercentText(estimate.value));
          }
        }
      }
      const std::string name = fmt::format("{}-map-{}-{}", PartStem(index, part), ++number, FileName(method));
      Figure(name, DrawHeatMap(map));
      File(name, ".csv", TableCsv(csv));
    }
    body_ += "</div>\n";
  }

  // Time and values, where any sample did not fail.
  void Found(std::size_t index, const std::vector<Part>& parts, const std::string& columns) {
    const Experiment& e = results_.experiments[index];
    std::set<int> threads;
    for (const Observation& one : e.observations) {
      if (one.failed.empty()) threads.insert(one.by.threads);
    }
    if (threads.empty()) return;
    body_ += "<h3>Time, and what else was measured</h3>\n";
    body_ += fmt::format(
        "<p>Means. Seconds are of a sample alone: what another sample had read before is not in them. They "
        "are of the machine as it was, with what else it did, on {} threads.</p>\n",
        fmt::join(threads, ", "));
    std::vector<std::vector<std::string>> csv;
    for (const Part& part : parts) PartValues(index, part, columns, csv);
    File(Stem(index) + "-values", ".csv", TableCsv(csv));
  }

  // What was found beside the scores: by method and column, without intervals.
  void PartValues(std::size_t index, const Part& part, const std::string& columns,
                  std::vector<std::vector<std::string>>& csv) {
    const Experiment& e = part.experiment;
    const std::vector<FoundRow> found = RowsOf(e, columns);
    if (found.empty()) return;
    const FoundValues values = ValuesOf(e);
    // Time by the way a sample turned out says nothing.
    if (!part.whole && values.names.size() == 1 && values.series.empty()) return;
    const std::string label = part.label(), stem = PartStem(index, part);
    if (!label.empty()) body_ += fmt::format("<h4>{}</h4>\n", EscapeHtml(label));
    const FoundTable table = ValuesTable(e, found, columns, values.names);
    body_ += TableHtml(table.rows, table.n_names);
    const std::vector<Json> lengths = ColumnValues(e, columns);
    body_ += "<div class=\"curves\">\n";
    if (Curves(columns, lengths)) {
      for (const std::string& name : values.names) {
        Lines(fmt::format("{}-{}", stem, FileName(name)),
              ValueChart(PartTitle(index, part, name) + " by length", found, name, lengths));
      }
    }
    for (const FoundValues::Series& series : values.series) {
      Lines(
          fmt::format("{}-{}", stem, FileName(series.name)),
          SeriesChart(PartTitle(index, part, e.measure.name) + " by " + series.name, found, columns, series));
    }
    body_ += "</div>\n";
    for (const FoundValues::Series& series : values.series) {
      body_ += TableHtml(SeriesTable(found, columns, series));
    }
    AddValuesCsv(part, found, columns, ValuesOf(results_.experiments[index]), csv);
  }

  void Settings(const Experiment& e) {
    body_ += "<h3>Configuration</h3>\n<dl class=\"facts\">\n";
    for (const auto& [name, value] : e.settings) {
      body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", EscapeHtml(name),
                           EscapeHtml(value + KnownText(value)));
    }
    EsaCompressions(e);
    Origins(e, "measured by", &Provenance::program);
    Origins(e, "measured on", &Provenance::machine);
    body_ += "</dl>\n";
  }

  void EsaCompressions(const Experiment& e) {
    std::set<std::string> found;
    for (const Observation& one : e.observations) found.insert(one.esa_compression);
    found.erase("");
    if (found.empty()) return;
    body_ += fmt::format("<div><dt>compression of ESA\u2019s scores</dt><dd>{}</dd></div>\n",
                         EscapeHtml(fmt::format("{}", fmt::join(found, "; "))));
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
  const std::map<std::string, std::size_t> paper_places_;
  std::string body_;
  Report report_;
  std::set<std::string> names_;
};

}  // namespace

Report MakeReport(const Results& results, const ReportOrigin& origin) { return Page(results, origin).Make(); }

}  // namespace longheads
