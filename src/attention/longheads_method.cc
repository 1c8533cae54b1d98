// How LongHeads is made from its options.
#include <fmt/format.h>

#include <algorithm>

#include "attention/longheads.h"

namespace longheads {
namespace {

// The paper's 256, or the largest power of two of which half the trained window holds three: tiny models have
// tiny windows, and the default method must run on them.
int64_t DefaultChunk(int64_t trained_window) {
  int64_t chunk = 256;
  while (chunk > 1 && 3 * chunk > trained_window / 2) chunk /= 2;
  return chunk;
}

// "none", "all", or "own-key+begin" and the like.
bool ReadCompat(std::string_view text, LongHeadsOptions::Compat& compat) {
  if (text == "none") return true;
  const bool all = text == "all";
  for (;;) {
    const std::size_t plus = text.find('+');
    const std::string_view name = text.substr(0, plus);
    if (!all && name != "own-key" && name != "chunk-end" && name != "begin") return false;
    compat.own_key |= all || name == "own-key";
    compat.chunk_end |= all || name == "chunk-end";
    compat.begin |= all || name == "begin";
    if (plus == std::string_view::npos) return true;
    text.remove_prefix(plus + 1);
  }
}

// That the three lengths go together, and fit the model's window.
void CheckLengths(OptionReader& reader, const LongHeadsOptions& o, int64_t model_window) {
  if (o.window % o.chunk != 0) {
    reader.Fail(fmt::format(
        "window={} is not a multiple of chunk={}: try window={}", o.window, o.chunk,
        std::clamp<int64_t>(o.window / o.chunk, 3, std::max<int64_t>(3, model_window / o.chunk)) * o.chunk));
  }
  if (o.window / o.chunk < 3) {
    reader.Fail(
        fmt::format("window={} holds {} chunks of {}, but the first, the previous and the current chunk need "
                    "three: try window={}, or a smaller chunk",
                    o.window, o.window / o.chunk, o.chunk, 3 * o.chunk));
  }
  if (o.window > model_window) {
    reader.Fail(
        fmt::format("window={} is larger than the {} tokens of the model's window: use at most window={}",
                    o.window, model_window, model_window / o.chunk * o.chunk));
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
}

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t usual = model.usual_window();
  LongHeadsOptions o;
  o.chunk = DefaultChunk(usual);
  reader.Tokens("chunk", o.chunk);
  if (o.chunk > model.window / 3) {
    reader.Fail(model.window < 3
                    ? fmt::format("the model's window of {} tokens is too short for chunks: use --attn full",
                                  model.window)
                    : fmt::format("chunk={} is too long: the first, the previous and the current chunk must "
                                  "fit in the model's window of {} tokens: use at most chunk={}",
                                  o.chunk, model.window, model.window / 3));
    return tl::unexpected<Error>(reader.status().error());
  }
  o.window = std::max<int64_t>(3, std::min<int64_t>(4096, usual / 2) / o.chunk) * o.chunk;
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
  using O = LongHeadsOptions;
  reader.Choice<O::Represent>(
      "represent",
      {{"paper", O::Represent::kPaper}, {"mean", O::Represent::kMean}, {"last", O::Represent::kLast}},
      o.represent);
  reader.Choice<O::Choose>("choose",
                           {{"top", O::Choose::kTop},
                            {"random", O::Choose::kRandom},
                            {"random-keep", O::Choose::kRandomKeep},
                            {"last-k", O::Choose::kLastK}},
                           o.choose);
  reader.OnOff("first", o.first);
  reader.Choice<O::Fix>(
      "fix",
      {{"none", O::Fix::kNone}, {"head", O::Fix::kHead}, {"layer", O::Fix::kLayer}, {"both", O::Fix::kBoth}},
      o.fix);
  if (const SpecOption* const compat = reader.Find("compat");
      compat != nullptr && !ReadCompat(compat->value, o.compat)) {
    reader.Fail(
        fmt::format("compat is '{}', but must be none, all, or some of own-key, chunk-end and begin "
                    "joined by '+'",
                    compat->value));
  }
  CheckLengths(reader, o, model.window);
  LH_TRY(reader.status());
  return SameInEveryLayer(model, std::make_shared<LongHeads>(o, model.shape, model.layout, model.window));
}

std::vector<OptionInfo> Options() {
  return {
      {"chunk", "tokens",
       "256; for a trained window below 1536 the largest power of two of which half the window holds three",
       "1 .. a third of the model's window", "length l of a chunk, the unit that heads choose"},
      {"window", "tokens",
       "4096, or half the trained window, in whole chunks, if that is smaller; at least three chunks",
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
      {"represent", "paper|mean|last", "paper", "",
       "what stands for a chunk: the paper's vector, the mean of its keys, or the last of them"},
      {"choose", "top|random|random-keep|last-k", "top", "",
       "how heads choose: the best scores, at random (all but their own chunk, or beside the first and "
       "previous "
       "too), or the worst scores"},
      {"first", "on|off", "on", "", "whether the first chunk is always seen; off: it never is"},
      {"fix", "none|head|layer|both", "none", "",
       "one choice for all heads of a layer, by the sum of their scores; each head's choice of the first "
       "layer in "
       "all layers; or one for everything"},
      {"compat", "none|all|NAME+NAME", "none", "own-key, chunk-end, begin",
       "oddities of the published code: own-key (prefill past begin leaves out the query's own key), "
       "chunk-end (decode "
       "of a chunk's last token uses K-1 slots), begin (decode selects one token early); compat=all with "
       "begin=window "
       "is the published code"},
  };
}

}  // namespace

Method AutoMethod() {
  return {{.name = "auto",
           .summary = "The default: LongHeads with begin at the model's window. Inside the window it is full "
                      "attention.",
           .source = "Lu et al. 2024",
           .options = Options(),
           .page = "longheads.md"},
          Create};
}

Method LongHeadsMethod() {
  return {
      {.name = "longheads",
       .summary = "LongHeads: beyond `begin`, each head attends to the first, previous and current chunk "
                  "and those that match its query best, at positions the model knows.",
       .source = "Lu et al. 2024, \"LongHeads: Multi-Head Attention is Secretly a Long Context Processor\"",
       .options = Options()},
      Create};
}

}  // namespace longheads
