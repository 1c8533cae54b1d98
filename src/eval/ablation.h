// LongHeads' ablation (Table 4): what becomes of a task when one thing about the choice of chunks changes.
// The variants are methods, so that any task can be run on them; here are their specs, and how they compare.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/interval.h"
#include "eval/task_record.h"

namespace longheads {

struct AblationVariant {
  std::string label;  // the paper's
  std::string attention;
};

struct AblationBase {
  int64_t chunk = 256;    // l
  int64_t window = 4096;  // A = K l
  std::string rest = {};  // further options of longheads, as in "begin=window"
};

// The base first. Other numbers of chunks, K/2 and K/4, keep the chunk; other chunks, 2 l and l/2, keep the
// window. Refused where the base has no room for them: K must be a multiple of 4, and 12 at least.
Result<std::vector<AblationVariant>> AblationVariants(const AblationBase& base);

// One sample's score, to be compared with another method's of the same sample.
struct SampleScore {
  std::string sample;
  std::string document;  // samples of one are no independent draws
  double score = 0;
};

struct ScoreDifference {
  int64_t n_samples = 0;  // that both have
  double mean = 0;        // the variant's less the base's
  Interval interval;      // 95%: of shares PairedShareInterval, else the mean's by documents
};

// Over the samples that both have; nothing where these are of fewer than two documents.
std::optional<ScoreDifference> DifferenceFromBase(std::span<const SampleScore> variant,
                                                  std::span<const SampleScore> base, bool shares);

// A row for each variant, in the order given: its mean, and its difference from the base over the samples
// that both have, with the 95% interval of that difference (clustered by document). Several lines.
std::string AblationTable(std::span<const TaskRecord> records, std::span<const AblationVariant> variants);

}  // namespace longheads
