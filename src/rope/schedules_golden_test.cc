// The schedules against the tables of Hugging Face transformers (tools/oracle/rope_goldens.py): to 1e-6, of
// which their float32 takes less than 4e-7.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "rope/schedules.h"

namespace longheads {
namespace {

using Json = nlohmann::json;

const Json& Tables() {
  static const Json tables = [] {
    std::ifstream file(LONGHEADS_SOURCE_DIR "/tests/golden/rope/tables.json");
    return Json::parse(file).at("tables");
  }();
  return tables;
}

std::optional<double> Given(const Json& parameters, const std::string& name) {
  if (!parameters.contains(name) || parameters[name].is_null()) return std::nullopt;
  return parameters[name].get<double>();
}

Result<Frequencies> ByYarn(const Frequencies& own, const Json& table) {
  const Json& p = table["parameters"];
  YarnOptions options{.original_context = p.at("original_max_position_embeddings")};
  // A null factor means the ratio of the windows.
  options.factor =
      Given(p, "factor")
          .value_or(table["max_position"].get<double>() / static_cast<double>(options.original_context));
  options.beta_fast = Given(p, "beta_fast").value_or(options.beta_fast);
  options.beta_slow = Given(p, "beta_slow").value_or(options.beta_slow);
  options.attention_factor = Given(p, "attention_factor");
  options.mscale = Given(p, "mscale").value_or(0);
  options.mscale_all_dim = Given(p, "mscale_all_dim").value_or(0);
  options.truncate = p.value("truncate", true);
  return Yarn(own, table["base"], options);
}

Result<Frequencies> ByLongrope(const Frequencies& own, const Json& table) {
  const Json& p = table["parameters"];
  const std::vector<float> is_short = p.at("short_factor"), is_long = p.at("long_factor");
  const int64_t original = p.at("original_max_position_embeddings");
  const double ratio = table["max_position"].get<double>() / static_cast<double>(original);
  return Longrope(own,
                  {.short_factors = is_short,
                   .long_factors = is_long,
                   .original_context = original,
                   .factor = Given(p, "factor").value_or(ratio),
                   .attention_factor = Given(p, "attention_factor")},
                  table["n_tokens"]);
}

Result<Frequencies> Ours(const Json& table) {
  const Frequencies own = *TrainedFrequencies(table["base"], table["rotary_dim"], {});
  const std::string type = table["type"];
  const Json& p = table["parameters"];
  if (type == "linear") return PositionInterpolation(own, p.at("factor"));
  if (type == "dynamic") return DynamicNtk(own, p.at("factor"), table["max_position"], table["n_tokens"]);
  if (type == "yarn") return ByYarn(own, table);
  if (type == "longrope") return ByLongrope(own, table);
  if (type == "llama3") {
    return Llama3(own, {.factor = p.at("factor"),
                        .low_freq_factor = p.at("low_freq_factor"),
                        .high_freq_factor = p.at("high_freq_factor"),
                        .original_context = p.at("original_max_position_embeddings")});
  }
  return InvalidInput("no schedule of ours is called " + type);
}

double WorstDifference(const Frequencies& ours, const Json& table) {
  const std::vector<double> theta = table["theta"];
  if (theta.size() != ours.theta.size()) return std::numeric_limits<double>::infinity();
  double worst = std::abs(ours.amplitude / table["amplitude"].get<double>() - 1);
  for (std::size_t m = 0; m < theta.size(); ++m) {
    worst = std::max(worst, std::abs(ours.theta[m] / theta[m] - 1));
  }
  return worst;
}

TEST(SchedulesGolden, EqualTheTablesOfTransformers) {
  std::map<std::string, int> seen;
  for (const Json& table : Tables()) {
    const Result<Frequencies> ours = Ours(table);
    ASSERT_TRUE(ours) << table["parameters"] << ": " << ours.error().message;
    EXPECT_LT(WorstDifference(*ours, table), 1e-6) << table["type"] << " " << table["parameters"];
    ++seen[table["type"]];
  }
  for (const char* const type : {"linear", "dynamic", "yarn", "llama3", "longrope"}) {
    EXPECT_GE(seen[type], 3) << type;
  }
}

// Fixed NTK-aware scaling by n / L is dynamic scaling of factor 1 at n tokens.
TEST(SchedulesGolden, NtkAwareIsDynamicWithAFactorOfOne) {
  int n_compared = 0;
  for (const Json& table : Tables()) {
    if (table["type"] != "dynamic" || table["parameters"]["factor"] != 1.0) continue;
    const Frequencies own = *TrainedFrequencies(table["base"], table["rotary_dim"], {});
    const double factor = table["n_tokens"].get<double>() / table["max_position"].get<double>();
    EXPECT_LT(WorstDifference(*NtkAware(own, factor), table), 1e-6);
    ++n_compared;
  }
  EXPECT_GT(n_compared, 0);
}

// The comparison sees what a schedule could get wrong: another table of the same shape is far off.
TEST(SchedulesGolden, TablesOfOtherParametersDiffer) {
  for (const Json& table : Tables()) {
    Json changed = table;
    for (auto& [name, value] : changed["parameters"].items()) {
      if (!value.is_number_float()) continue;
      Json other = table;
      other["parameters"][name] = value.get<double>() * 1.25;
      const bool inactive = name == "mscale" && !table["parameters"].contains("mscale_all_dim");
      const bool within = table["type"] == "dynamic" && table["n_tokens"] <= table["max_position"];
      const bool other_given =
          table["parameters"].contains("attention_factor") && name == "factor" && table["type"] == "longrope";
      if (inactive || within || other_given) continue;
      EXPECT_GT(WorstDifference(*Ours(other), table), 1e-5) << name << " of " << table["parameters"];
    }
  }
}

}  // namespace
}  // namespace longheads
