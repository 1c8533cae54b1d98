#include "eval/ablation.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "eval/interval.h"

namespace longheads {
namespace {

// A variant's scores and the base's, of the samples that both have.
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
  Interval Difference(bool shares) const {
    return shares ? PairedShareInterval(variant, base, Correlation()) : differences.NormalInterval();
  }
};

}  // namespace

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
  std::map<std::string, double> of_base;  // by sample
  for (const TaskRecord& record : records) {
    if (record.failed.empty() && record.setup.attention == variants[0].attention) {
      of_base[record.sample.id] = record.measured.score;
    }
  }
  std::vector<std::vector<std::string>> rows = {
      {"variant", "mean (95%)", "samples", "failed", "difference (95%)", "attn"}};
  for (const AblationVariant& variant : variants) {
    ClusteredScores scores;
    Pairs pairs;
    int64_t n_failed = 0;
    bool shares = false;
    for (const TaskRecord& record : records) {
      if (record.setup.attention != variant.attention) continue;
      if (!record.failed.empty()) {
        ++n_failed;
        continue;
      }
      shares = record.measure.unit == "share";
      const std::string& document =
          record.sample.document.empty() ? record.sample.id : record.sample.document;
      scores.Add(document, record.measured.score);
      const auto base = of_base.find(record.sample.id);
      if (base != of_base.end()) pairs.Add(document, record.measured.score, base->second);
    }
    const double scale = shares ? 100 : 1;
    const auto with_interval = [scale](double mean, const Interval& interval, const char* form) {
      return fmt::format(fmt::runtime(form), scale * mean, scale * interval.low, scale * interval.high);
    };
    std::string difference = "-";
    if (&variant != &variants[0] && pairs.differences.n_documents() > 1) {
      difference =
          with_interval(pairs.differences.mean(), pairs.Difference(shares), "{:+.1f} ({:+.1f} to {:+.1f})");
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
