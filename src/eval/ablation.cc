#include "eval/ablation.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace longheads {
namespace {

struct Pairs {
  ClusteredScores variant, base, differences;
  std::vector<std::pair<double, double>> scores;

  void Add(const std::string& document, double of_variant, double of_base) {
    variant.Add(document, of_variant);
    base.Add(document, of_base);
    differences.Add(document, of_variant - of_base);
    scores.emplace_back(of_variant, of_base);
  }
  double Correlation() const {
    double xx = 0, yy = 0, xy = 0;
    for (const auto& [x, y] : scores) {
      xx += (x - variant.mean()) * (x - variant.mean());
      yy += (y - base.mean()) * (y - base.mean());
      xy += (x - variant.mean()) * (y - base.mean());
    }
    return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
  }
};

std::vector<SampleScore> ScoresOf(std::span<const TaskRecord> records, const std::string& attention) {
  std::vector<SampleScore> scores;
  for (const TaskRecord& record : records) {
    if (record.setup.attention != attention || !record.failed.empty()) continue;
    const std::string& document = record.sample.document.empty() ? record.sample.id : record.sample.document;
    scores.push_back({.sample = record.sample.id, .document = document, .score = record.measured.score});
  }
  return scores;
}

}  // namespace

std::optional<ScoreDifference> DifferenceFromBase(std::span<const SampleScore> variant,
                                                  std::span<const SampleScore> base, bool shares) {
  std::map<std::string, double> of_base;  // by sample
  for (const SampleScore& one : base) of_base[one.sample] = one.score;
  Pairs pairs;
  for (const SampleScore& one : variant) {
    const auto found = of_base.find(one.sample);
    if (found != of_base.end()) pairs.Add(one.document, one.score, found->second);
  }
  if (pairs.differences.n_documents() < 2) return std::nullopt;
  return ScoreDifference{.n_samples = pairs.differences.n_samples(),
                         .mean = pairs.differences.mean(),
                         .interval = shares
                                         ? PairedShareInterval(pairs.variant, pairs.base, pairs.Correlation())
                                         : pairs.differences.NormalInterval()};
}

Result<std::vector<AblationVariant>> AblationVariants(const AblationBase& base) {
  const int64_t k = base.chunk > 0 ? base.window / base.chunk : 0;
  if (k * base.chunk != base.window || k % 4 != 0 || k < 12 || base.chunk % 2 != 0) {
    return InvalidInput(
        fmt::format("--window {} and --chunk {}: the window must be 12, 16, 20, ... even chunks, so that "
                    "there is room for a "
                    "quarter of them",
                    base.window, base.chunk));
  }
  const auto spec = [&](int64_t chunk, int64_t window, const std::string& change) {
    return fmt::format("longheads,chunk={},window={}{}{}{}{}", chunk, window, base.rest.empty() ? "" : ",",
                       base.rest, change.empty() ? "" : ",", change);
  };
  const auto with = [&](const std::string& change) { return spec(base.chunk, base.window, change); };
  return std::vector<AblationVariant>{
      {"base", with("")},
      {"Random P", with("choose=random")},
      {"Random P \\ {C1, C-1}", with("choose=random-keep")},
      {"Last K", with("choose=last-k")},
      {"w/o C1", with("first=off")},
      {"Fix Head", with("fix=head")},
      {"Fix Layer", with("fix=layer")},
      {"Fix Head & Layer", with("fix=both")},
      {fmt::format("K = {}", k / 2), spec(base.chunk, base.window / 2, "")},
      {fmt::format("K = {}", k / 4), spec(base.chunk, base.window / 4, "")},
      {fmt::format("l = {}, K = {}", base.chunk * 2, k / 2), spec(base.chunk * 2, base.window, "")},
      {fmt::format("l = {}, K = {}", base.chunk / 2, k * 2), spec(base.chunk / 2, base.window, "")}};
}

std::string AblationTable(std::span<const TaskRecord> records, std::span<const AblationVariant> variants) {
  const std::vector<SampleScore> base = ScoresOf(records, variants[0].attention);
  std::vector<std::vector<std::string>> rows = {
      {"variant", "mean (95%)", "samples", "failed", "difference (95%)", "attn"}};
  for (const AblationVariant& variant : variants) {
    int64_t n_failed = 0;
    bool shares = false;
    for (const TaskRecord& record : records) {
      if (record.setup.attention != variant.attention) continue;
      if (record.failed.empty()) shares = record.measure.unit == "share";
      n_failed += record.failed.empty() ? 0 : 1;
    }
    const std::vector<SampleScore> of_variant = ScoresOf(records, variant.attention);
    ClusteredScores scores;
    for (const SampleScore& one : of_variant) scores.Add(one.document, one.score);
    const double scale = shares ? 100 : 1;
    const auto with_interval = [scale](double mean, const Interval& interval, const char* form) {
      return fmt::format(fmt::runtime(form), scale * mean, scale * interval.low, scale * interval.high);
    };
    std::string difference = "-";
    if (&variant != &variants[0]) {
      const std::optional<ScoreDifference> found = DifferenceFromBase(of_variant, base, shares);
      if (found) difference = with_interval(found->mean, found->interval, "{:+.1f} ({:+.1f} to {:+.1f})");
    }
    rows.push_back(
        {variant.label,
         scores.n_samples() == 0
             ? "-"
             : with_interval(scores.mean(), shares ? scores.ShareInterval() : scores.NormalInterval(),
                             "{:.1f} ({:.1f} to {:.1f})"),
         fmt::format("{}", scores.n_samples()), fmt::format("{}", n_failed), difference, variant.attention});
  }
  return AlignColumns(rows);
}

}  // namespace longheads
