// What the records of pass keys and of perplexity have in common: the configuration's fingerprint, and which
// of several records of one case counts.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "eval/model_setup.h"
#include "eval/task_record.h"

namespace longheads {

// That of a task's samples of this name and with these options: two records with the same one are of one
// configuration.
inline std::string CaseFingerprint(const std::string& experiment, const std::string& attention,
                                   const ModelSetup& model, const Json& options) {
  return TaskSetup{.model = model, .attention = attention, .task = experiment, .options = options}
      .Fingerprint();
}

// Refuses a line whose fingerprint is not that of what it says. Lines of older programs have none.
inline Status CheckFingerprint(const Json& line, const std::string& fingerprint) {
  if (!line.contains("fingerprint") || line["fingerprint"] == fingerprint) return {};
  return InvalidInput("its fingerprint is of another configuration than the one it names");
}

// Whether the case at `i` failed and was run again: what came of it then is what counts, also where it failed
// for want of the compression of ESA's scores that it had then.
template <typename Record>
bool WasRunAgain(std::span<const Record> records, std::size_t i) {
  const Record& record = records[i];
  return !record.failed.empty() && std::ranges::any_of(records.subspan(i + 1), [&](const Record& later) {
    auto setup = record.setup;
    if (setup.model.esa_compression.empty()) setup.model.esa_compression = later.setup.model.esa_compression;
    return later.SameCase(setup, record.attention, record.which);
  });
}

}  // namespace longheads
