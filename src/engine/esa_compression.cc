#include "engine/esa_compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "attention/esa.h"
#include "attention/esa_fit.h"
#include "attention/esa_recall.h"
#include "attention/registry.h"
#include "attention/spec.h"
#include "base/bytes.h"
#include "engine/esa_sample_text.h"
#include "engine/model_fingerprint.h"
#include "engine/word_hash.h"
#include "formats/output_file.h"

namespace longheads {
namespace {

// Little-endian, as every machine that this runs on.
struct Header {
  std::array<char, 8> magic = {'L', 'H', 'E', 'S', 'A', '0', '1', '\n'};
  uint64_t fingerprint = 0;
  int64_t distance = 0;
  int64_t n_rows = 0;
  int64_t n_columns = 0;
  int64_t n_layers = 0;
  uint64_t checksum = 0;  // of all matrices
};

// Layers whose sums take this much are fitted in one reading of the text.
constexpr uint64_t kMomentBytes = uint64_t{1} << 30;

// Pieces of the text: full attention is over a piece, and its cost grows with the square.
constexpr int64_t kPieceTokens = 2048;

uint64_t ChecksumOf(const EsaProjections& projections) {
  WordHash hash;
  for (const EsaProjections::Layer& layer : projections.layers) {
    hash.Add(layer.q.data(), layer.q.size() * sizeof(float));
    hash.Add(layer.k.data(), layer.k.size() * sizeof(float));
  }
  return hash.value();
}

}  // namespace

std::string EsaCompressionPath(uint64_t fingerprint, int64_t distance) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::string folder = cache != nullptr && *cache != '\0'
                                 ? std::string(cache)
                                 : fmt::format("{}/.cache", home != nullptr ? home : "");
  return fmt::format("{}/longheads/esa-{:016x}-w{}.bin", folder, fingerprint, distance);
}

Status SaveEsaProjections(const std::string& path, uint64_t fingerprint, const EsaProjections& projections) {
  const Header header{.fingerprint = fingerprint,
                      .distance = projections.distance,
                      .n_rows = projections.n_rows,
                      .n_columns = projections.n_columns,
                      .n_layers = static_cast<int64_t>(projections.layers.size()),
                      .checksum = ChecksumOf(projections)};
  std::error_code ignored;  // what is wrong with the folder shows where the file is made
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  LH_ASSIGN(OutputFile file, OutputFile::Create(path));
  LH_TRY(file.Write(std::as_bytes(std::span(&header, 1))));
  for (const EsaProjections::Layer& layer : projections.layers) {
    for (const std::vector<float>* const matrix : {&layer.q, &layer.k})
      LH_TRY(file.Write(std::as_bytes(std::span(*matrix))));
  }
  return file.Commit();
}

Result<std::shared_ptr<const EsaProjections>> LoadEsaProjections(const std::string& path,
                                                                 uint64_t fingerprint, int64_t distance,
                                                                 int64_t n_columns, int64_t n_layers) {
  const auto refused = [&](const std::string& why) {
    return InvalidInput(fmt::format("{}: {}: fit it again with 'longheads fit-esa'", path, why));
  };
  std::ifstream file(path, std::ios::binary);
  Header header;
  const Header expected;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) || header.magic != expected.magic) {
    return refused("it is not a fitted compression of this version");
  }
  if (header.fingerprint != fingerprint) return refused("it was fitted to another model file");
  if (header.distance != distance || header.n_columns != n_columns || header.n_layers != n_layers ||
      header.n_rows < 1 || header.n_rows > n_columns) {
    return refused("it was fitted for another shape");
  }
  // The shape is the model's, so that sizes cannot overflow; and the file has to have them.
  const uint64_t floats = static_cast<uint64_t>(header.n_rows) * static_cast<uint64_t>(n_columns);
  std::error_code error;
  if (std::filesystem::file_size(path, error) !=
          sizeof header + 2 * sizeof(float) * floats * static_cast<uint64_t>(n_layers) ||
      error) {
    return refused("it is cut off");
  }
  auto projections = std::make_shared<EsaProjections>(
      EsaProjections{.distance = distance, .n_rows = header.n_rows, .n_columns = n_columns, .layers = {}});
  for (int64_t i = 0; i < n_layers; ++i) {
    EsaProjections::Layer& layer = projections->layers.emplace_back();
    for (std::vector<float>* const matrix : {&layer.q, &layer.k}) {
      matrix->resize(floats);
      if (!file.read(reinterpret_cast<char*>(matrix->data()),
                     static_cast<std::streamsize>(floats * sizeof(float)))) {
        return refused("it is cut off");
      }
    }
  }
  if (ChecksumOf(*projections) != header.checksum) return refused("its numbers were changed");
  return projections;
}

Result<std::shared_ptr<const EsaProjections>> FindEsaProjections(const GgufFile& file, int64_t distance,
                                                                 const AttentionModel& model) {
  const uint64_t fingerprint = FingerprintModel(file);
  const std::string path = EsaCompressionPath(fingerprint, distance);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    const bool usual = distance == DefaultEsaDistance(model.trained_window);
    return InvalidInput(fmt::format(
        "scores are compressed, but no compression is fitted to this model for n_local={} (it was looked for "
        "at {}): run 'longheads fit-esa -m {}{}' once, or use score=exact",
        distance, path, file.name(), usual ? "" : fmt::format(" --n-local {}", distance)));
  }
  return LoadEsaProjections(path, fingerprint, distance, model.shape.n_kv_heads * model.shape.head_dim,
                            model.n_layers);
}

Result<std::string> EsaCompressionOf(const Engine& engine) {
  const Result<AttentionSpec> spec = ParseSpec(engine.attention_spec());
  if (!spec || spec->policy != "esa") return std::string();
  AttentionModel model = engine.attention_model();
  // The method is made once more to see what it asks for: which n_local it has is its own affair.
  std::string compression;
  model.esa_projections = [&](int64_t distance) -> Result<std::shared_ptr<const EsaProjections>> {
    LH_ASSIGN(std::shared_ptr<const EsaProjections> found,
              FindEsaProjections(engine.file(), distance, model));
    compression = FingerprintText(ChecksumOf(*found));
    return found;
  };
  LH_TRY(MakeAttention(engine.attention_spec(), model));
  return compression;
}

// ---- Fitting

namespace {

// A model whose layers attend as told.
Result<std::unique_ptr<Engine>> LoadWith(
    const EngineOptions& options, const std::function<LayerPolicies(const AttentionModel&)>& policies) {
  EngineOptions own = options;
  own.make_attention = [&policies](const AttentionModel& model) -> Result<std::vector<LayerAttention>> {
    std::vector<LayerAttention> layers;
    for (const auto& policy : policies(model)) layers.push_back({policy, model.trained});
    return layers;
  };
  return Engine::Load(own);
}

// 8, 16, ... and what is asked for.
std::vector<int64_t> DimsUpTo(int64_t most) {
  std::vector<int64_t> dims;
  for (const int64_t dim : {8, 16, 24, 32, 48, 64, 96, 128, 192, 256}) {
    if (dim < most) dims.push_back(dim);
  }
  dims.push_back(most);
  return dims;
}

}  // namespace

Result<EsaFitReport> FitEsaCompression(const EsaFitOptions& options) {
  EsaFitReport report;
  EsaLayerMoments sums;
  int64_t n_columns = 0;
  int64_t n_layers = 0;
  const auto calibration = [&](const AttentionModel& model) {
    n_columns = model.shape.n_kv_heads * model.shape.head_dim;
    n_layers = model.n_layers;
    report.n_local = options.n_local > 0 ? options.n_local : DefaultEsaDistance(model.trained_window);
    return EsaCalibration(model, report.n_local, sums);
  };
  LH_ASSIGN(const std::unique_ptr<Engine> engine, LoadWith(options.engine, calibration));
  if (report.n_local >= engine->config().trained_window) {
    return InvalidInput(fmt::format("--n-local {} is not below the {} tokens the model was trained on",
                                    report.n_local, engine->config().trained_window));
  }
  if (options.dim > n_columns) {
    return InvalidInput(
        fmt::format("--dim {} is more than the {} dimensions of a token's keys", options.dim, n_columns));
  }
  report.dim = options.dim > 0 ? options.dim : std::min<int64_t>(n_columns, 256);
  LH_ASSIGN(const std::vector<TokenId> tokens,
            engine->EncodePrompt(options.text.empty() ? kEsaSampleText : std::string_view(options.text),
                                 /*chat=*/false));
  report.n_tokens = static_cast<int64_t>(tokens.size());
  if (report.n_tokens < n_columns) {
    return InvalidInput(
        fmt::format("the text has {} tokens, but keys have {} dimensions: a fit needs at "
                    "least as many tokens, and better many times more: use a longer one (-f)",
                    report.n_tokens, n_columns));
  }

  const uint64_t fingerprint = FingerprintModel(engine->file());
  EsaProjections projections{
      .distance = report.n_local, .n_rows = report.dim, .n_columns = n_columns, .layers = {}};
  for (const int64_t dim : DimsUpTo(report.dim)) report.errors.push_back({dim, 0});
  const int64_t piece = std::min(kPieceTokens, engine->config().trained_window);
  const auto layer_bytes = static_cast<uint64_t>(n_columns * n_columns) * 2 * sizeof(double);
  const auto together = std::max<int64_t>(1, static_cast<int64_t>(kMomentBytes / layer_bytes));
  for (int64_t first = 0; first < n_layers; first += together) {
    const int64_t n_here = std::min(together, n_layers - first);
    sums = {.first_layer = first, .layers = {}};
    for (int64_t i = 0; i < n_here; ++i) sums.layers.emplace_back(n_columns);
    for (int64_t begin = 0; begin < report.n_tokens; begin += piece) {
      Session session = engine->NewSession();
      const auto n = static_cast<std::size_t>(std::min(piece, report.n_tokens - begin));
      LH_TRY(engine->Prefill(session, std::span(tokens).subspan(static_cast<std::size_t>(begin), n),
                             Outputs::kNone, {.cancel = options.cancel, .progress = nullptr}));
      if (options.progress) {
        const double here = static_cast<double>(begin) / static_cast<double>(report.n_tokens);
        options.progress(
            (static_cast<double>(first) + here * static_cast<double>(n_here)) / static_cast<double>(n_layers),
            report.n_tokens);
      }
    }
    for (const EsaMoments& moments : sums.layers) {
      if (Cancelled(options.cancel)) {
        return MakeError(ErrorKind::kCancelled, "stopped");
      }
      EsaProjections::Layer layer = FitEsa(moments, report.dim).projections;
      for (EsaFitReport::Error& error : report.errors) {
        const auto floats = static_cast<std::ptrdiff_t>(error.dim * n_columns);
        const EsaProjections::Layer part{.q = {layer.q.begin(), layer.q.begin() + floats},
                                         .k = {layer.k.begin(), layer.k.begin() + floats}};
        error.share += EsaSquaredError(part, moments) / static_cast<double>(n_layers);
      }
      projections.layers.push_back(std::move(layer));
    }
  }
  report.path = EsaCompressionPath(fingerprint, report.n_local);
  LH_TRY(SaveEsaProjections(report.path, fingerprint, projections));
  return report;
}

Result<EsaRecallReport> MeasureEsaRecall(const EsaRecallOptions& options) {
  EsaRecallReport report;
  EsaRecall recall;
  EsaOptions esa;
  Status found;
  const auto policies = [&](const AttentionModel& model) -> LayerPolicies {
    esa = DefaultEsaOptions(model);
    esa.score = EsaOptions::Score::kExact;
    if (options.n_local > 0) esa.n_local = options.n_local;
    if (options.k > 0) esa.k = options.k;
    if (options.eps >= 0) esa.eps = options.eps;
    recall.from = options.from;
    auto projections = model.esa_projections(esa.n_local);
    if (!projections) {
      found = tl::unexpected<Error>(projections.error());
      return SameInEveryLayer(model, std::make_shared<Esa>(esa, model.shape, nullptr));
    }
    recall.dims = DimsUpTo((*projections)->n_rows);
    return EsaRecallPolicies(model, esa, *projections, recall);
  };
  LH_ASSIGN(const std::unique_ptr<Engine> engine, LoadWith(options.engine, policies));
  LH_TRY(found);
  LH_ASSIGN(std::vector<TokenId> tokens, engine->EncodePrompt(options.text, /*chat=*/false));
  if (options.n_tokens > 0) {
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(options.n_tokens)));
  }
  report.n_tokens = static_cast<int64_t>(tokens.size());
  Session session = engine->NewSession();
  const auto progress = [&](double share) {
    if (options.progress) options.progress(share, report.n_tokens);
  };
  LH_TRY(engine->Prefill(session, tokens, Outputs::kNone, {.cancel = options.cancel, .progress = progress}));
  const EsaRecall::Counts total = recall.Total();
  if (total.n_chosen == 0) {
    return InvalidInput(
        fmt::format("the text has {} tokens, and nothing is chosen before {}: use a longer one",
                    report.n_tokens, esa.n_init + esa.k + esa.n_local + esa.chunk));
  }
  const auto n_chosen = static_cast<double>(total.n_chosen);
  for (std::size_t i = 0; i < recall.dims.size(); ++i) {
    report.found.push_back({recall.dims[i], static_cast<double>(total.found[i]) / n_chosen});
  }
  for (const EsaRecall::Counts& layer : recall.layers) {
    report.layers.emplace_back();
    for (const int64_t found_here : layer.found) {
      report.layers.back().push_back(static_cast<double>(found_here) / static_cast<double>(layer.n_chosen));
    }
  }
  report.by_chance = total.by_chance / n_chosen;
  return report;
}

}  // namespace longheads
