// How much of ESA's exact choice a compression of so many dimensions finds: a measurement, made while a model
// reads a text by exact scores.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/esa.h"

namespace longheads {

struct EsaRecall {
  struct Counts {
    std::vector<int64_t> found = {};  // per dim: chosen tokens that the exact scores chose too
    int64_t n_chosen = 0;             // by the exact scores
    // Where every choice of k among the middle is as likely: what chance would find.
    double by_chance = 0;
  };

  std::vector<int64_t> dims;
  int64_t from = 0;  // choices for queries from this position on are compared
  std::vector<Counts> layers = {};

  Counts Total() const;
};

// ESA of these options (score=exact, share=sum) that compares every choice with those of compressed scores.
// One engine at a time may use it; `recall` must outlive it.
LayerPolicies EsaRecallPolicies(const AttentionModel& model, const EsaOptions& options,
                                std::shared_ptr<const EsaProjections> projections, EsaRecall& recall);

}  // namespace longheads
