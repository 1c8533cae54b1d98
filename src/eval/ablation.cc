#include "eval/ablation.h"

#include <fmt/format.h>

#include <map>

#include "eval/interval.h"

namespace longheads {

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
      {"variant", "mean", "samples", "failed", "difference (95%)", "attn"}};
  for (const AblationVariant& variant : variants) {
    ClusteredScores scores, differences;
    int64_t n_failed = 0;
    double scale = 1;
    for (const TaskRecord& record : records) {
      if (record.setup.attention != variant.attention) continue;
      if (!record.failed.empty()) {
        ++n_failed;
        continue;
      }
      if (record.measure.unit == "share") scale = 100;
      const std::string& document =
          record.sample.document.empty() ? record.sample.id : record.sample.document;
      scores.Add(document, record.measured.score);
      const auto base = of_base.find(record.sample.id);
      if (base != of_base.end()) differences.Add(document, record.measured.score - base->second);
    }
    std::string difference = "-";
    if (&variant != &variants[0] && differences.n_documents() > 1) {
      const Interval interval = differences.NormalInterval();
      difference = fmt::format("{:+.1f} ({:+.1f} to {:+.1f})", scale * differences.mean(),
                               scale * interval.low, scale * interval.high);
    }
    rows.push_back(
        {variant.label, scores.n_samples() == 0 ? "-" : fmt::format("{:.1f}", scale * scores.mean()),
         fmt::format("{}", scores.n_samples()), fmt::format("{}", n_failed), difference, variant.attention});
  }
  return AlignColumns(rows);
}

}  // namespace longheads
