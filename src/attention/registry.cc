#include "attention/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/frequency_registry.h"
#include "attention/full.h"
#include "attention/longheads.h"
#include "attention/options.h"

namespace longheads {
namespace {

using Creator = Result<std::shared_ptr<const Policy>> (*)(const MethodInfo&, const std::vector<SpecOption>&,
                                                          const AttentionModel&);

Result<std::shared_ptr<const Policy>> CreateFull(const MethodInfo& info,
                                                 const std::vector<SpecOption>& options,
                                                 const AttentionModel& model) {
  LH_TRY(OptionReader(info, options).status());
  return std::make_shared<FullAttention>(model.shape, model.window);
}

// The paper's 256, or the largest power of two of which half the trained window holds three: tiny models have
// tiny windows, and the default method must run on them.
int64_t DefaultChunk(int64_t trained_window) {
  int64_t chunk = 256;
  while (chunk > 1 && 3 * chunk > trained_window / 2) chunk /= 2;
  return chunk;
}

// "own-key+begin" and the like.
bool ReadCompat(std::string_view text, LongHeadsOptions::Compat& compat) {
  for (;;) {
    const std::size_t plus = text.find('+');
    const std::string_view name = text.substr(0, plus);
    const bool all = name == "all";
    if (!all && name != "none" && name != "own-key" && name != "chunk-end" && name != "begin") return false;
    compat.own_key |= all || name == "own-key";
    compat.chunk_end |= all || name == "chunk-end";
    compat.begin |= all || name == "begin";
    if (plus == std::string_view::npos) return true;
    text.remove_prefix(plus + 1);
  }
}

Result<std::shared_ptr<const Policy>> CreateLongHeads(const MethodInfo& info,
                                                      const std::vector<SpecOption>& options,
                                                      const AttentionModel& model) {
  OptionReader reader(info, options);
  const int64_t trained = model.trained_window;
  LongHeadsOptions o;
  o.chunk = DefaultChunk(trained);
  reader.Tokens("chunk", o.chunk);
  if (o.chunk > trained / 3) {
    reader.Fail(trained < 3 ? fmt::format("the model's trained window of {} tokens is too short for chunks: "
                                          "use --attn full",
                                          trained)
                            : fmt::format("chunk={} is too long: the first, the previous and the current "
                                          "chunk must fit in the {} tokens the model was trained on: use at "
                                          "most chunk={}",
                                          o.chunk, trained, trained / 3));
    return tl::unexpected<Error>(reader.status().error());
  }
  o.window = std::min<int64_t>(4096, trained / 2) / o.chunk * o.chunk;
  reader.Tokens("window", o.window);
  o.begin = model.window / o.chunk * o.chunk;
  if (const SpecOption* const begin = reader.Find("begin"); begin != nullptr && begin->value == "window") {
    o.begin = o.window;
  } else {
    reader.Tokens("begin", o.begin);
  }
  const std::vector<std::pair<std::string, LongHeadsOptions::Grouping>> groupings = {
      {"head", LongHeadsOptions::Grouping::kHead}, {"kv", LongHeadsOptions::Grouping::kKv}};
  reader.Choice("reps", groupings, o.reps);
  reader.Choice("select", groupings, o.select);
  if (const SpecOption* const compat = reader.Find("compat");
      compat != nullptr && !ReadCompat(compat->value, o.compat)) {
    reader.Fail(
        fmt::format("compat is '{}', but must be none, all, or some of own-key, chunk-end and begin "
                    "joined by '+'",
                    compat->value));
  }
  if (o.window % o.chunk != 0) {
    reader.Fail(fmt::format("window={} is not a multiple of chunk={}: try window={}", o.window, o.chunk,
                            std::max<int64_t>(3, o.window / o.chunk) * o.chunk));
  }
  if (o.window / o.chunk < 3) {
    reader.Fail(
        fmt::format("window={} holds {} chunks of {}, but the first, the previous and the current chunk need "
                    "three: try window={}, or a smaller chunk",
                    o.window, o.window / o.chunk, o.chunk, 3 * o.chunk));
  }
  if (o.window > model.window) {
    reader.Fail(
        fmt::format("window={} is larger than the {} tokens of the model's window: use at most window={}",
                    o.window, model.window, model.window / o.chunk * o.chunk));
  }
  if (o.begin < o.window) {
    reader.Fail(
        fmt::format("begin={} is smaller than window={}: before that many tokens there are not enough chunks "
                    "to choose from",
                    o.begin, o.window));
  }
  if (o.begin % o.chunk != 0) {
    reader.Fail(fmt::format("begin={} is not a multiple of chunk={}: try begin={}", o.begin, o.chunk,
                            (o.begin + o.chunk - 1) / o.chunk * o.chunk));
  }
  LH_TRY(reader.status());
  return std::make_shared<LongHeads>(o, model.shape, model.layout, model.window);
}

std::vector<OptionInfo> LongHeadsOptionInfos() {
  return {
      {"chunk", "tokens",
       "256; for a trained window below 1536 the largest power of two of which half the window holds three",
       "1 .. a third of the trained window", "length l of a chunk, the unit that heads choose"},
      {"window", "tokens", "4096, or half the trained window, in whole chunks, if that is smaller",
       "a multiple of chunk, 3 chunks .. the model's window",
       "tokens a query attends to at most: K = window / chunk"},
      {"begin", "tokens",
       "the model's window, in whole chunks: the trained one, or what the frequencies extend it to",
       "a multiple of chunk, >= window; or the word 'window'",
       "full attention before this many tokens, selection from there on"},
      {"reps", "head|kv", "head", "",
       "one chunk representation per query head (faithful), or per KV head (less memory and time)"},
      {"select", "head|kv", "head", "",
       "every query head chooses for itself (faithful), or the heads of a KV head choose together by the sum "
       "of scores"},
      {"compat", "none|all|NAME+NAME", "none", "own-key, chunk-end, begin",
       "oddities of the published code: own-key (prefill past begin leaves out the query's own key), "
       "chunk-end (decode "
       "of a chunk's last token uses K-1 slots), begin (decode selects one token early); compat=all with "
       "begin=window "
       "is the published code"},
  };
}

struct Entry {
  MethodInfo info;
  Creator create;
};

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
      {{"auto",
        "The default: LongHeads with begin at the model's window. Inside the window it is full attention.",
        "Lu et al. 2024", LongHeadsOptionInfos(), "longheads.md"},
       CreateLongHeads},
      {{"full",
        "Full causal attention. Past the trained window models break down; it warns.",
        "Vaswani et al. 2017",
        {}},
       CreateFull},
      {{"longheads",
        "LongHeads: beyond `begin`, each head attends to the first, previous and current chunk and those "
        "that match its "
        "query best, at positions the model knows.",
        "Lu et al. 2024, \"LongHeads: Multi-Head Attention is Secretly a Long Context Processor\"",
        LongHeadsOptionInfos()},
       CreateLongHeads},
  };
  return entries;
}

}  // namespace

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) names.push_back(entry.info.name);
  return names;
}

const std::vector<MethodInfo>& Methods() {
  static const std::vector<MethodInfo> methods = [] {
    std::vector<MethodInfo> all;
    for (const Entry& entry : Entries()) all.push_back(entry.info);
    return all;
  }();
  return methods;
}

const MethodInfo* FindMethod(std::string_view name) {
  for (const MethodInfo& method : Methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

Result<std::vector<LayerAttention>> MakeAttention(std::string_view text, const AttentionModel& model,
                                                  int64_t n_layers) {
  LH_ASSIGN(const AttentionSpec spec, ParseSpec(text));
  LH_ASSIGN(const ChosenFrequencies chosen, MakeFrequencies(spec.frequencies, spec.frequency_options, model));
  AttentionModel with_frequencies = model;
  with_frequencies.window = chosen.window;
  for (const Entry& entry : Entries()) {
    if (entry.info.name != spec.policy) continue;
    LH_ASSIGN(std::shared_ptr<const Policy> policy,
              entry.create(entry.info, spec.policy_options, with_frequencies));
    return std::vector<LayerAttention>(static_cast<std::size_t>(n_layers),
                                       LayerAttention{std::move(policy), chosen.frequencies, chosen.explain});
  }
  return InvalidInput(fmt::format("unknown attention method '{}'", spec.policy));
}

}  // namespace longheads
