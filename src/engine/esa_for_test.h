// A compression of ESA's scores for a tiny model, of random numbers: as good as a fitted one where only the
// same choices are asked for, wherever its keys are.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "engine/esa_compression.h"
#include "engine/model_fingerprint.h"
#include "tests/support/cache_folder.h"
#include "tests/support/gguf_builder.h"

namespace longheads {

inline constexpr const char* kCompressedEsa = "esa,n_init=4,n_local=256,k=64,chunk=128,dim=16";

// What kCompressedEsa asks for, or the same with another n_local: found as long as the folder is there.
inline std::unique_ptr<CacheFolder> SaveRandomEsaCompression(const std::string& model_path,
                                                             const TinyLlamaOptions& model,
                                                             int64_t n_local = 256) {
  auto cache = std::make_unique<CacheFolder>();
  EsaProjections projections{
      .distance = n_local, .n_rows = 16, .n_columns = model.n_kv_heads * model.head_dim, .layers = {}};
  std::mt19937 random(1);
  std::normal_distribution<float> number;
  for (int64_t layer = 0; layer < model.n_layers; ++layer) {
    EsaProjections::Layer& to = projections.layers.emplace_back();
    for (int64_t i = 0; i < projections.n_rows * projections.n_columns; ++i) {
      to.q.push_back(number(random));
      to.k.push_back(to.q.back());
    }
  }
  const uint64_t fingerprint = FingerprintModel(GgufFile::Open(model_path).value());
  const Status saved =
      SaveEsaProjections(EsaCompressionPath(fingerprint, projections.distance), fingerprint, projections);
  EXPECT_TRUE(saved) << saved.error().message;
  return cache;
}

}  // namespace longheads
