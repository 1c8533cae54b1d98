// The compressions of ESA's scores as files: fitted to a model by a text it reads, saved in the user's cache
// folder, found again when a model is loaded. The mathematics is attention/esa_fit.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/esa_projections.h"
#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"

namespace longheads {

// Where the compression of a model lies: ${XDG_CACHE_HOME:-$HOME/.cache}/longheads/esa-FINGERPRINT-wN.bin.
std::string EsaCompressionPath(uint64_t fingerprint, int64_t distance);

// Whole or not at all: written beside the target and renamed.
Status SaveEsaProjections(const std::string& path, uint64_t fingerprint, const EsaProjections& projections);
// Refuses a file that is another model's, of another shape, cut off or changed.
Result<std::shared_ptr<const EsaProjections>> LoadEsaProjections(const std::string& path,
                                                                 uint64_t fingerprint, int64_t distance,
                                                                 int64_t n_columns, int64_t n_layers);
// The one that was fitted to the model; the error says how to fit it.
Result<std::shared_ptr<const EsaProjections>> FindEsaProjections(const GgufFile& file, int64_t distance,
                                                                 const AttentionModel& model);

// What an engine's method scores by, for records of results: 16 hexadecimal digits of a checksum of the
// compression's numbers, as its file has them now. Empty where the method has no compression.
Result<std::string> EsaCompressionOf(const Engine& engine);

struct EsaFitOptions {
  EngineOptions engine = {};  // its attention is not used
  std::string text = {};      // empty: the built-in sample
  int64_t n_local = 0;        // 0: the default of --attn esa
  int64_t dim = 0;            // the most that --attn esa,dim= may ask for; 0: all there are, at most 256
  const CancelToken* cancel = nullptr;
  // The share that is done, 0 .. 1, of reading so many tokens.
  std::function<void(double share, int64_t n_tokens)> progress = {};
};

struct EsaFitReport {
  std::string path;
  int64_t n_tokens = 0;
  int64_t n_local = 0;
  int64_t dim = 0;
  // Squared error of the scores of `dim` dimensions, as a share of the squared scores, mean of the layers.
  struct Error {
    int64_t dim;
    double share;
  };
  std::vector<Error> errors;
};

// Fits a compression to the model and saves it.
Result<EsaFitReport> FitEsaCompression(const EsaFitOptions& options);

struct EsaRecallOptions {
  EngineOptions engine = {};  // its attention is not used
  std::string text = {};
  int64_t n_local = 0;  // 0: the default of --attn esa
  int64_t k = 0;        // tokens that are chosen; 0: the same
  int64_t eps = -1;     // smoothing; -1: the same
  // Queries at positions [from, n_tokens) are compared; the text ends there. 0: the whole text.
  int64_t from = 0;
  int64_t n_tokens = 0;
  const CancelToken* cancel = nullptr;
  std::function<void(double share, int64_t n_tokens)> progress = {};
};

struct EsaRecallReport {
  int64_t n_tokens = 0;
  struct Found {
    int64_t dim;
    double share;  // of the tokens that exact scores choose
  };
  std::vector<Found> found;
  double by_chance = 0;
  std::vector<std::vector<double>> layers;  // [n_layers, found.size()]: the shares of each layer
};

// Reads the text by exact scores and compares each choice with those of the saved compression, with the
// default options of --attn esa but for those given.
Result<EsaRecallReport> MeasureEsaRecall(const EsaRecallOptions& options);

}  // namespace longheads
