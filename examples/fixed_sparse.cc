#include "examples/fixed_sparse.h"

#include <fmt/format.h>

#include "attention/plan_parts.h"

namespace longheads {

void FixedSparse::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                            Plan& plan) const {
  const auto true_position = [](int64_t i) { return i; };
  // A batch may hold tokens of several sequences: runs are of one each, in the order of their positions.
  ForEachRun(block, [&](const TokenRun& run) {
    const auto position = [&](std::size_t t) { return block.tokens[t].position; };
    TokenRun own = run;    // the run's tokens that lie in the block of keys at `begin`
    TokenRun later = run;  // and those after it
    for (int64_t begin = 0; begin <= position(run.end - 1); begin += options_.block) {
      const int64_t end = begin + options_.block;
      own.begin = later.begin;
      while (own.begin < run.end && position(own.begin) < begin) ++own.begin;
      later.begin = own.begin;
      while (later.begin < run.end && position(later.begin) < end) ++later.begin;
      own.end = later.begin;
      AddSegment(block, own, shape_.group(), {.key_begin = begin, .key_end = end}, true_position, plan);
      AddSegment(block, later, shape_.group(), {.key_begin = end - options_.summary, .key_end = end},
                 true_position, plan);
    }
  });
}

std::string FixedSparse::Warning(int64_t n_tokens) const {
  if (n_tokens <= trained_window_) return "";
  return fmt::format(
      "fixed-sparse keeps true distances, and {} tokens are more than the {} the model was "
      "trained on: expect nonsense from there on",
      n_tokens, trained_window_);
}

std::string FixedSparse::Explain() const {
  return fmt::format(
      "Fixed sparse attention: every token sees its own block of {} tokens, and the last {} of "
      "each block before it",
      options_.block, options_.summary);
}

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  FixedSparseOptions o;
  reader.Tokens("block", o.block);
  reader.Tokens("summary", o.summary);
  if (o.summary > o.block) {
    reader.Fail(fmt::format("summary={} is more than the {} tokens of a block", o.summary, o.block));
  }
  LH_TRY(reader.status());
  return SameInEveryLayer(model, std::make_shared<FixedSparse>(o, model.shape, model.window));
}

}  // namespace

Method FixedSparseMethod() {
  return {{.name = "fixed-sparse",
           .summary =
               "Fixed sparse attention: every token sees its own block, and the ends of the blocks before.",
           .source = "Child et al. 2019, \"Generating Long Sequences with Sparse Transformers\"",
           .options = {{"block", "tokens", "128", ">= 1", "length l of a block"},
                       {"summary", "tokens", "8", "1 .. block",
                        "c: tokens at a block's end that later ones see"}}},
          Create};
}

}  // namespace longheads
