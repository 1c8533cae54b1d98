#include "attention/frequency_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "rope/schedules.h"

namespace longheads {
namespace {

using Creator = Result<ChosenFrequencies> (*)(OptionReader&, const AttentionModel&);

const std::vector<std::pair<std::string, bool>> kSwitch = {{"on", true}, {"off", false}};

// Tokens that `factor` times the window are, bounded so that a nonsense factor does not overflow.
int64_t Extended(int64_t window, double factor) {
  constexpr double kMost = int64_t{1} << 40;
  const double extended = static_cast<double>(window) * factor;
  return extended >= 1 ? static_cast<int64_t>(std::min(extended, kMost)) : window;
}

// The schedule's result, or what was wrong with its options in the user's words.
Result<ChosenFrequencies> Finish(OptionReader& reader, Result<Frequencies> frequencies, int64_t window,
                                 std::string explain) {
  LH_TRY(reader.status());
  if (!frequencies) reader.Fail(frequencies.error().message);
  LH_TRY(reader.status());
  return ChosenFrequencies{std::move(*frequencies), window, std::move(explain), reader.follows_length()};
}

// Schedules that treat pairs of dimensions differently by how fast they turn begin from plain RoPE.
void RefuseDeclaredScaling(OptionReader& reader, const AttentionModel& model) {
  if (model.rope.scaling == RopeScaling::kNone) return;
  reader.Fail(fmt::format(
      "the model file declares {} scaling of its own, and there is no meaning in one on top of the "
      "other: leave the file's out with --rope-scaling none, or use --attn with no frequencies",
      RopeScalingName(model.rope.scaling)));
}

Result<ChosenFrequencies> CreateNone(OptionReader& reader, const AttentionModel& model) {
  return Finish(reader, model.trained, model.trained_window, "");
}

Result<ChosenFrequencies> CreatePi(OptionReader& reader, const AttentionModel& model) {
  double factor = 4;
  reader.Number("factor", factor);
  return Finish(reader, PositionInterpolation(model.trained, factor), Extended(model.trained_window, factor),
                fmt::format("positions divided by {} (PI)", factor));
}

Result<ChosenFrequencies> CreateNtk(OptionReader& reader, const AttentionModel& model) {
  double factor = 4;
  reader.Number("factor", factor);
  return Finish(reader, NtkAware(model.trained, factor), Extended(model.trained_window, factor),
                fmt::format("NTK-aware scaling by {}", factor));
}

Result<ChosenFrequencies> CreateDynamicNtk(OptionReader& reader, const AttentionModel& model) {
  double factor = 2;
  reader.Number("factor", factor);
  enum class Mode { kFreeze, kExact, kStale };
  Mode mode = Mode::kFreeze;
  reader.Choice<Mode>("mode", {{"freeze", Mode::kFreeze}, {"exact", Mode::kExact}, {"stale", Mode::kStale}},
                      mode);
  reader.FollowLength();
  const int64_t n = std::max(model.text_tokens, model.trained_window);
  std::string explain = n == model.trained_window
                            ? "no scaling within the model's window (dynamic NTK)"
                            : fmt::format("NTK-aware scaling for a text of {} tokens (dynamic NTK)", n);
  if (mode != Mode::kFreeze) {
    explain = fmt::format("NTK-aware scaling that follows the length so far, {} (dynamic NTK)",
                          mode == Mode::kExact ? "keys turned with it" : "keys left as they were");
  }
  LH_ASSIGN(
      ChosenFrequencies chosen,
      Finish(reader, DynamicNtk(model.trained, factor, model.trained_window, n), n, std::move(explain)));
  if (mode != Mode::kFreeze) {
    // The longest text scales most: where that is finite, no length that is asked for later is refused.
    constexpr int64_t kLongest = int64_t{1} << 40;
    const Result<Frequencies> longest = DynamicNtk(model.trained, factor, model.trained_window, kLongest);
    if (!longest) reader.Fail(longest.error().message);
    LH_TRY(reader.status());
    chosen.frequencies = model.trained;
    chosen.following.at = [own = model.trained, factor, window = model.trained_window](int64_t n_tokens) {
      return *DynamicNtk(own, factor, window, n_tokens);
    };
    chosen.following.turns_keys = mode == Mode::kExact;
  }
  return chosen;
}

Result<ChosenFrequencies> CreateYarn(OptionReader& reader, const AttentionModel& model) {
  YarnOptions o{.factor = 4, .original_context = model.trained_window};
  reader.Number("factor", o.factor);
  reader.Tokens("orig_ctx", o.original_context);
  reader.Number("beta_fast", o.beta_fast);
  reader.Number("beta_slow", o.beta_slow);
  reader.Number("ext_factor", o.ext_factor);
  reader.Number("attention_factor", o.attention_factor);
  reader.Number("mscale", o.mscale);
  reader.Number("mscale_all_dim", o.mscale_all_dim);
  reader.Choice("truncate", kSwitch, o.truncate);
  RefuseDeclaredScaling(reader, model);
  return Finish(reader, Yarn(model.trained, model.rope.base, o), Extended(o.original_context, o.factor),
                fmt::format("YaRN with factor {} from {} tokens", o.factor, o.original_context));
}

Result<ChosenFrequencies> CreateLlama3(OptionReader& reader, const AttentionModel& model) {
  Llama3Options o{.original_context = model.trained_window};
  reader.Number("factor", o.factor);
  reader.Number("low_freq_factor", o.low_freq_factor);
  reader.Number("high_freq_factor", o.high_freq_factor);
  reader.Tokens("orig_ctx", o.original_context);
  RefuseDeclaredScaling(reader, model);
  if (!model.rope.divisors.empty()) {
    reader.Fail("the model file holds this scaling already, as its rope_freqs tensor");
  }
  return Finish(reader, Llama3(model.trained, o), Extended(o.original_context, o.factor),
                fmt::format("llama3 scaling by {} from {} tokens", o.factor, o.original_context));
}

Result<ChosenFrequencies> CreateLongrope(OptionReader& reader, const AttentionModel& model) {
  const RopeDeclaration& rope = model.rope;
  if (rope.scaling != RopeScaling::kLongrope) {
    reader.Fail(
        "LongRoPE needs a table of factors that was searched for this very model, and the model file has "
        "none "
        "(rope_factors_long.weight, rope_factors_short.weight)");
    return tl::unexpected<Error>(reader.status().error());
  }
  enum class Table { kAuto, kShort, kLong };
  Table table = Table::kAuto;
  RopeDeclaration own = rope;
  if (own.original_context == 0) own.original_context = own.context_length;
  reader.Tokens("orig_ctx", own.original_context);
  std::optional<double> factor;
  reader.Number("factor", factor);
  reader.Number("attention_factor", own.attn_factor);
  if (factor) {
    if (!(*factor > 0) || !std::isfinite(*factor)) {
      reader.Fail(fmt::format("factor={} must be a number above 0", *factor));
      return tl::unexpected<Error>(reader.status().error());
    }
    // A declaration's 1 would stand for none: the formula's amplitude is 1 from there down.
    own.factor = std::max(1.0, *factor);
    if (*factor <= 1 && !own.attn_factor) own.attn_factor = 1;
  }
  reader.Choice<Table>("table", {{"auto", Table::kAuto}, {"short", Table::kShort}, {"long", Table::kLong}},
                       table);
  const int64_t window = DeclaredWindow(own);
  const bool is_long = table == Table::kLong || (table == Table::kAuto && window > own.original_context);
  return Finish(reader, DeclaredFrequencies(own, own.original_context + (is_long ? 1 : 0)),
                is_long ? window : own.original_context,
                fmt::format("LongRoPE with its {} factors", is_long ? "long" : "short"));
}

struct Entry {
  MethodInfo info;
  Creator create;
};

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = [] {
    const auto factor = [](std::string default_value, std::string meaning) {
      return OptionInfo{"factor", "number", std::move(default_value), "at least 1", std::move(meaning)};
    };
    const OptionInfo orig_ctx = {"orig_ctx", "tokens", "the trained window", "at least 1",
                                 "the window that the scaling starts from"};
    const OptionInfo attention_factor = {"attention_factor", "number", "", "above 0",
                                         "the amplitude a: logits are multiplied by its square"};
    const auto amplitude = [&](std::string default_value) {
      OptionInfo info = attention_factor;
      info.default_value = std::move(default_value);
      return info;
    };
    std::vector<Entry> all = {
        {{"none",
          "The model's own frequencies, with the scaling that its file declares or --rope-scaling sets.",
          "Su et al. 2021, \"RoFormer: Enhanced Transformer with Rotary Position Embedding\"",
          {}},
         CreateNone},
        {{"pi",
          "Position interpolation: every position is divided by the factor.",
          "Chen et al. 2023, \"Extending Context Window of Large Language Models via Positional "
          "Interpolation\"",
          {factor("4", "s: theta / s; the window becomes s times the trained one")}},
         CreatePi},
        {{"ntk",
          "NTK-aware scaling: the slowest pair of dimensions is slowed by the factor, the fastest not at "
          "all.",
          "bloc97 2023, \"NTK-Aware Scaled RoPE\"; Peng et al. 2023, section 3.1",
          {factor("4",
                  "alpha: the base becomes base * alpha^(d / (d - 2)); the window becomes alpha times the "
                  "trained one")}},
         CreateNtk},
        {{"dynamic-ntk",
          "Dynamic NTK: NTK-aware scaling by as much as the text's length asks for; none within the window.",
          "emozilla 2023, \"Dynamically Scaled RoPE\"; Peng et al. 2023, section 3.3",
          {{"factor", "number", "2", "at least 1",
            "alpha: past the trained window L a text of n tokens has the base base * (alpha n / L - (alpha - "
            "1))^(d / (d - 2))"},
           {"mode", "freeze|exact|stale", "freeze", "",
            "n is the length of the prompt and the longest answer (freeze), or the length so far, with all "
            "keys "
            "turned to the newest base (exact), or each with the base that it came under (stale, as in "
            "Hugging "
            "Face's code)"}}},
         CreateDynamicNtk},
        {{"yarn",
          "YaRN: slow pairs of dimensions are interpolated, fast ones stay, and logits grow a little.",
          "Peng et al. 2023, \"YaRN: Efficient Context Window Extension of Large Language Models\"",
          {factor("4", "s: interpolated pairs turn s times slower; the window becomes s times orig_ctx"),
           orig_ctx,
           {"beta_fast", "number", "32", "at least beta_slow",
            "pairs that turn more often than this within orig_ctx stay"},
           {"beta_slow", "number", "1", "above 0",
            "pairs that turn less often than this within orig_ctx are interpolated"},
           {"ext_factor", "number", "1", "0 to 1",
            "how much of the ramp is applied: 0 interpolates every pair"},
           amplitude("0.1 ln(factor) + 1"),
           {"mscale", "number", "0", "at least 0",
            "with mscale_all_dim, and unless attention_factor is given: a = (0.1 mscale ln(factor) + 1) / "
            "(0.1 "
            "mscale_all_dim ln(factor) + 1); only where both are above 0 (DeepSeek)"},
           {"mscale_all_dim", "number", "0", "at least 0", "see mscale"},
           {"truncate", "on|off", "on", "", "round the ends of the ramp outwards to whole pairs"}}},
         CreateYarn},
        {{"llama3",
          "The scaling of Llama 3.1: long waves are slowed by the factor, short ones stay.",
          "Dubey et al. 2024, \"The Llama 3 Herd of Models\", and its reference code",
          {factor("8", "s: long waves turn s times slower; the window becomes s times orig_ctx"),
           {"low_freq_factor", "number", "1", "above 0",
            "waves longer than orig_ctx / low_freq_factor are slowed by the factor"},
           {"high_freq_factor", "number", "4", "above low_freq_factor",
            "waves shorter than orig_ctx / high_freq_factor stay"},
           orig_ctx}},
         CreateLlama3},
        {{"longrope",
          "LongRoPE: a divisor for each pair, from the tables that the model file holds.",
          "Ding et al. 2024, \"LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens\"",
          {{"table", "auto|short|long", "auto", "",
            "the divisors to use; auto takes those of the model's whole window"},
           {"orig_ctx", "tokens", "as the model file declares it", "at least 2",
            "texts up to here are what the short divisors are for"},
           {"factor", "number", "the window / orig_ctx", "above 0", "s, which the amplitude follows"},
           amplitude("as the model file declares it, else sqrt(1 + ln(factor) / ln(orig_ctx))")}},
         CreateLongrope},
    };
    for (Entry& entry : all) entry.info.page = "frequencies.md";
    return all;
  }();
  return entries;
}

}  // namespace

std::vector<std::string> FrequencyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) names.push_back(entry.info.name);
  return names;
}

const std::vector<MethodInfo>& FrequencyMethods() {
  static const std::vector<MethodInfo> methods = [] {
    std::vector<MethodInfo> all;
    for (const Entry& entry : Entries()) all.push_back(entry.info);
    return all;
  }();
  return methods;
}

const MethodInfo* FindFrequencyMethod(std::string_view name) {
  for (const MethodInfo& method : FrequencyMethods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

Result<ChosenFrequencies> MakeFrequencies(std::string_view name, const std::vector<SpecOption>& options,
                                          const AttentionModel& model) {
  for (const Entry& entry : Entries()) {
    if (entry.info.name != name) continue;
    OptionReader reader(entry.info, options);
    return entry.create(reader, model);
  }
  return InvalidInput(fmt::format("unknown frequency schedule '{}'", name));
}

}  // namespace longheads
