// What experiments left in a directory, whichever they were, as observations that can be laid out in tables
// and drawn: read from the journals of `longheads eval`, which stay as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "eval/ppl_sample.h"
#include "eval/provenance.h"
#include "eval/task.h"

namespace longheads {

// One sample's.
struct Observation {
  // As given to --attn; with the compression of ESA's scores where an experiment has several for one method.
  std::string attention;
  Json cell = {};           // what tables and figures lay out by: length, depth
  std::string sample = {};  // with the same one methods were asked the same
  std::string document;     // samples of one are no independent draws
  double score = 0;
  std::optional<PplScore> ppl = {};  // in the place of a score
  std::string failed = {};           // why there is no score
  Json values = Json::object();      // what else was found, by name
  double seconds = 0;
  Provenance by = {};
  int64_t tokens = 0;                // read for this sample alone
  std::string esa_compression = {};  // EsaCompressionOf; empty where there is none, or it is not recorded
};

// Samples of one task, model and settings; methods differ.
struct Experiment {
  std::string task;
  MeasureName measure;  // "perplexity" where observations have a PplScore
  // Name and value of what bears on results beside method and cell: the model first.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<Observation> observations;

  std::vector<std::string> Methods() const;  // in the order they come
  // Of one method, or of all; numbers ascending, else in the order they come.
  std::vector<Json> CellValues(const std::string& name, const std::string& attention = "") const;
  bool Has(const std::string& name) const;  // a cell of this name, in every observation
};

// Of some observations of one experiment.
struct Estimate {
  int64_t n = 0;                                           // samples with a score
  int64_t failed = 0;                                      // without one
  double value = 0;                                        // mean score, or perplexity; at most kMostValue
  std::optional<std::pair<double, double>> interval = {};  // 95%
};

// Of text that a model takes for impossible the perplexity is beyond any number.
inline constexpr double kMostValue = 1e300;
Estimate EstimateOf(const Experiment& experiment, std::span<const Observation* const> observations);

// What the columns of an experiment's tables are: the length where there is one, else the cells' first name.
std::string ColumnsOf(const Experiment& experiment);
// Their values, and null where a cell has none.
std::vector<Json> ColumnValues(const Experiment& experiment, const std::string& columns);

// Observations that are alike in all that their cells say beside columns and depth: other tasks, other
// numbers of needles are other experiments, whose mean would be of nothing.
struct Part {
  Json cell = Json::object();  // what they are alike in, of what varies: {"stars": 16}
  bool whole = true;  // false: some of another part's samples, told apart by how they turned out to be
  Experiment experiment;

  std::string label() const;  // "stars 16"; empty where it is all there is
};
// Parts of one have cells of the same names. Where a sample class varies (task_record.h) there is a part of
// all beside those of each: papers give both. In its cell the name's value is "all".
std::vector<Part> PartsOf(const Experiment& experiment);

// The observations of a method whose cell has this value; null: none.
std::vector<const Observation*> Select(const Experiment& experiment, const std::string& attention,
                                       const std::string& cell = "", const Json& value = {});

struct Results {
  std::vector<Experiment> experiments;
  std::vector<std::string> notes;  // what a reader should know: unfinished lines, failed samples
};

// All *.jsonl below the directory. Refuses one without any, and a line that no experiment of this program
// wrote.
Result<Results> ReadResults(const std::string& directory);

// "4k" for 4096, "0.5" for 0.5, a dash for null: a cell's value as tables show it.
std::string CellName(const std::string& name, const Json& value);
// As a CSV has it: "4096"; nothing for null.
std::string CellText(const Json& value);

}  // namespace longheads
