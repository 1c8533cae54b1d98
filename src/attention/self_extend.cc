#include "attention/self_extend.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/plan_parts.h"
#include "base/check.h"

namespace longheads {
namespace {

// Rotations are 32-bit: in units of 1/1024 they reach two million tokens. The authors use groups up to 64.
constexpr int64_t kMostGroup = 1024;

// The smallest group that the authors' rule allows for a text of n tokens: W + (n - W) / G below two thirds
// of the model's window, since positions beyond are less well trained. 0 where no group is enough.
int64_t GroupFor(int64_t n, int64_t window, int64_t model_window) {
  const int64_t room = 2 * model_window - 3 * window;
  if (room <= 0) return 0;
  const int64_t group = 3 * std::max<int64_t>(n - window, 0) / room + 1;
  return group <= kMostGroup ? group : 0;
}

}  // namespace

SelfExtend::SelfExtend(const SelfExtendOptions& options, const HeadShape& shape, int64_t window)
    : options_(options),
      shape_(shape),
      window_(window),
      unit_(options.exact && options.window % options.group != 0 ? options.group : 1) {
  LH_CHECK(options.group > 0 && options.window > 0);
  LH_CHECK(!options.log_n || options.log_n_base >= 2);
}

void SelfExtend::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                           Plan& plan) const {
  const int64_t group = options_.group;
  const int64_t window = options_.window;
  // Where a query stands in groups, beyond floor(i/G).
  const int64_t shift = unit_ * window - (unit_ == 1 ? window / group : window);
  ForEachRun(block, [&](const TokenRun& run) {
    AddSegment(
        block, run, shape_.group(), {.key_begin = 0, .key_end = kNewestKey, .min_distance = window},
        [&](int64_t i) { return unit_ * (i / group) + shift; }, plan);
    AddSegment(
        block, run, shape_.group(),
        {.key_begin = 0, .key_end = kNewestKey, .max_distance = window, .absolute = true},
        [&](int64_t i) { return unit_ * i; }, plan);
  });
  if (options_.log_n) AddLogNScales(block, options_.log_n_base, plan);
}

int64_t SelfExtend::Capacity() const {
  // The first key's distance, floor((n - 1)/G) + W - floor(W/G), is the largest; exact division takes off
  // less than one more. Where W is all of the window, groups would begin past it.
  const int64_t n_groups = window_ - options_.window + options_.window / options_.group;
  return std::max(options_.window, options_.group * n_groups);
}

std::string SelfExtend::Warning(int64_t n_tokens) const {
  const int64_t capacity = Capacity();
  if (n_tokens <= capacity) return "";
  const int64_t group = GroupFor(n_tokens, options_.window, window_);
  return fmt::format(
      "self-extend with group={} and window={} reaches {} tokens before distances leave the model's window "
      "of "
      "{}, and {} are too many: use {}",
      options_.group, options_.window, capacity, window_, n_tokens,
      group > 0 ? fmt::format("group={}", group) : "a smaller window and a larger group, or --attn auto");
}

std::string SelfExtend::Explain() const {
  if (options_.group == 1) {
    return fmt::format(
        "Self-Extend in groups of one token: full attention, good for {} tokens (the model's window is {})",
        Capacity(), window_);
  }
  return fmt::format(
      "Self-Extend: every token sees all before it, the last {} at their true distances, the others in "
      "groups of {} that share one: good for {} tokens (the model's window is {})",
      options_.window, options_.group, Capacity(), window_);
}

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t usual = model.usual_window();
  SelfExtendOptions o;
  o.window = std::max<int64_t>(1, std::min(o.window, usual / 4));
  reader.Tokens("window", o.window);
  if (const SpecOption* const group = reader.Find("group"); group != nullptr && group->value == "auto") {
    reader.FollowLength();
    const auto group_for = [&] {
      return model.text_tokens <= model.window ? 1 : GroupFor(model.text_tokens, o.window, model.window);
    };
    o.group = group_for();
    while (o.group == 0 && o.window > 1 && reader.Find("window") == nullptr) {
      o.window /= 2;
      o.group = group_for();
    }
    if (o.group == 0) {
      reader.Fail(
          fmt::format("no group of up to {} tokens brings a text of {} tokens into two thirds of the "
                      "model's window of {} with window={}: {}--attn auto",
                      kMostGroup, model.text_tokens, model.window, o.window,
                      reader.Find("window") == nullptr ? "use " : "leave window out, or use "));
      return tl::unexpected<Error>(reader.status().error());
    }
  } else {
    reader.Tokens("group", o.group);
  }
  reader.OnOff("log_n", o.log_n);
  reader.Choice<bool>("fraction", {{"floor", false}, {"exact", true}}, o.exact);
  if (o.group > kMostGroup) {
    reader.Fail(fmt::format("group={} is more than {} tokens: the authors use 2 to 64", o.group, kMostGroup));
  }
  if (o.window > model.window) {
    reader.Fail(
        fmt::format("window={} is larger than the model's window of {} tokens", o.window, model.window));
  }
  o.log_n_base = model.trained_window;
  if (o.log_n && o.log_n_base < 2) reader.Fail("log_n needs a trained window of two tokens or more");
  LH_TRY(reader.status());
  return SameInEveryLayer(model, std::make_shared<SelfExtend>(o, model.shape, model.window));
}

}  // namespace

Method SelfExtendMethod() {
  return {
      {.name = "self-extend",
       .summary = "Self-Extend: every token sees all before it, near ones at their true distance, far ones "
                  "at that of groups of tokens.",
       .source = "Jin et al. 2024, \"LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning\"",
       .options =
           {
               {"group", "tokens", "8", "1 .. 1024; the authors advise 2 to 64; or the word 'auto'",
                "G: far tokens that share a position. auto: 1 where prompt and answer fit the model's window "
                "L, else the smallest with which W + (n - W) / G stays below two thirds of L; where none "
                "does, W is halved until one does, if it is not given"},
               {"window", "tokens", "1024, or a quarter of the trained window if that is less",
                "1 .. the model's window; the authors advise 512 to 1536 of 4096",
                "W: the nearest tokens, the query's own included, that are at their true distance"},
               {"log_n", "on|off", "off", "",
                "multiply the logits of the token at position i by max(1, ln(i + 1) / ln(trained "
                "window))"},
               {"fraction", "floor|exact", "floor", "",
                "far distances begin after W - floor(W/G), as the paper has it, or after W - W/G, as the "
                "published eager code does"},
           }},
      Create};
}

}  // namespace longheads
