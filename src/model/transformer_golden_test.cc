// The forward pass against Hugging Face transformers on the tiny Llamas of tests/golden/llama: plain ones,
// and ones under each RoPE schedule, which the engine learns of by a spec or by what the model's file
// declares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/npy.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

using Json = nlohmann::json;

constexpr const char* kFolder = LONGHEADS_SOURCE_DIR "/tests/golden/llama/";

struct Case {
  std::string name;
  TinyLlamaOptions model;
  std::string attention = "full";
  std::function<void(GgufBuilder&)> add_to_file = {};
  std::vector<int32_t> tokens;
  std::vector<int64_t> positions;
  // How many tokens may be read as a prompt before the others are decoded: the most of them first.
  std::vector<std::size_t> prefills;
  double exact_error = 0;
  std::vector<float> logits;  // [positions, vocab_size]
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Json> Entries(const std::string& manifest) {
  std::ifstream file(kFolder + manifest);
  return Json::parse(file)["cases"];
}

Case CaseOf(const Json& entry) {
  const auto& o = entry["options"];
  Case c;
  entry["name"].get_to(c.name);
  entry["tokens"].get_to(c.tokens);
  entry["positions"].get_to(c.positions);
  entry["exact_error"].get_to(c.exact_error);
  o["vocab_size"].get_to(c.model.vocab_size);
  o["n_layers"].get_to(c.model.n_layers);
  o["embed"].get_to(c.model.embed);
  o["n_heads"].get_to(c.model.n_heads);
  o["n_kv_heads"].get_to(c.model.n_kv_heads);
  o["head_dim"].get_to(c.model.head_dim);
  o["ffn"].get_to(c.model.ffn);
  o["context_length"].get_to(c.model.context_length);
  o["rope_base"].get_to(c.model.rope_base);
  o["rms_epsilon"].get_to(c.model.rms_epsilon);
  o["tied"].get_to(c.model.tied);
  o["attention_biases"].get_to(c.model.attention_biases);
  o["seed"].get_to(c.model.seed);
  const Result<NpyArray> logits = ReadNpy(kFolder + c.name + ".logits.npy");
  if (logits) c.logits = *logits->As<float>();
  c.prefills = {entry.value("n_at_once", c.tokens.size()), 0, 33};
  return c;
}

// What llama.cpp's converters write into a file for a configuration of transformers (mscale_all_dim as that
// of Mistral's models does; the others leave it out).
void DeclareScaling(const Json& entry, const Json& rope, GgufBuilder& builder) {
  const std::string type = rope["rope_type"];
  if (type == "llama3") {
    const std::vector<float> divisors = entry["divisors"];
    builder.Tensor("rope_freqs.weight", DType::kF32, {std::ssize(divisors)}, divisors);
    return;
  }
  const std::string prefix = "llama.rope.scaling.";
  builder.Set(prefix + "type", type);
  if (type == "longrope") {
    for (const std::string which : {"short", "long"}) {
      const std::vector<float> factors = rope[which + "_factor"];
      builder.Tensor("rope_factors_" + which + ".weight", DType::kF32, {std::ssize(factors)}, factors);
    }
  }
  if (rope.contains("original_max_position_embeddings")) {
    builder.Set(prefix + "original_context_length", rope["original_max_position_embeddings"].get<uint32_t>());
  }
  const std::pair<const char*, const char*> numbers[] = {
      {"factor", "factor"},
      {"beta_fast", "yarn_beta_fast"},
      {"beta_slow", "yarn_beta_slow"},
      {"mscale_all_dim", "yarn_log_multiplier"},
      {"attention_factor", type == "yarn" ? "yarn_attn_factor" : "attn_factor"},
  };
  for (const auto& [theirs, in_file] : numbers) {
    if (rope.contains(theirs)) builder.Set(prefix + in_file, rope[theirs].get<float>());
  }
}

enum class File : uint8_t {
  kSilent,    // knows of the window before scaling alone
  kDeclares,  // says all that the golden's configuration does
};

// How the engine learns of a golden's schedule.
struct Way {
  std::string golden;
  std::string name;
  File file;
  std::string attention = "full";
  bool at_once = false;                           // holds where the whole text is one prompt
  std::optional<double> declared_amplitude = {};  // where the file's shall not be the golden's
};

// The window from which all of them are scaled.
constexpr int64_t kOwnWindow = 64;

Json EntryOf(const Way& way) {
  static const std::vector<Json> entries = Entries("scaled.json");
  return *std::ranges::find_if(entries, [&way](const Json& entry) { return entry["name"] == way.golden; });
}

Case CaseOf(const Way& way) {
  const Json entry = EntryOf(way);
  Case c = CaseOf(entry);
  c.name += "-" + way.name;
  c.attention = way.attention;
  if (way.at_once) c.prefills = {c.tokens.size()};
  if (way.file == File::kSilent) {
    c.model.context_length = kOwnWindow;
    return c;
  }
  Json rope = entry["rope_parameters"];
  if (way.declared_amplitude) rope["attention_factor"] = *way.declared_amplitude;
  c.add_to_file = [entry, rope](GgufBuilder& builder) { DeclareScaling(entry, rope, builder); };
  return c;
}

std::vector<Way> Ways() {
  using enum File;
  return {
      {"scaled-linear", "by-spec", kSilent, "pi:factor=4+full"},
      {"scaled-linear", "by-file", kDeclares},
      {"scaled-yarn", "by-spec", kSilent, "yarn:factor=4+full"},
      {"scaled-yarn", "by-file", kDeclares},
      {"scaled-yarn-tuned", "by-spec", kSilent,
       "yarn:factor=4:beta_fast=4:beta_slow=0.5:attention_factor=1.25+full"},
      {"scaled-yarn-tuned", "by-file", kDeclares},
      {"scaled-yarn-mscale", "by-spec", kSilent, "yarn:factor=4:mscale=1:mscale_all_dim=0.5+full"},
      {"scaled-yarn-mscale", "by-file", kDeclares},
      {"scaled-llama3", "by-spec", kSilent, "llama3:factor=8:low_freq_factor=1:high_freq_factor=4+full"},
      {"scaled-llama3", "by-file", kDeclares},
      {"scaled-longrope-long", "by-file", kDeclares},
      {"scaled-longrope-long", "by-spec", kDeclares, "longrope:table=long+full"},
      // The file's window is longer than the text: the short table is the user's choice.
      {"scaled-longrope-short", "by-spec", kDeclares, "longrope:table=short+full"},
      // In one call of the model all three mean the same. Over several, transformers' code is `stale`.
      {"scaled-dynamic", "freeze", kSilent, "dynamic-ntk:factor=2:mode=freeze+full"},
      {"scaled-dynamic", "exact", kSilent, "dynamic-ntk:factor=2:mode=exact+full", /*at_once=*/true},
      {"scaled-dynamic", "stale", kSilent, "dynamic-ntk:factor=2:mode=stale+full", /*at_once=*/true},
      {"scaled-dynamic-one-by-one", "stale", kSilent, "dynamic-ntk:factor=2:mode=stale+full"},
  };
}

std::vector<Case> ReadCases() {
  std::vector<Case> cases;
  for (const Json& entry : Entries("tiny.json")) cases.push_back(CaseOf(entry));
  for (const Way& way : Ways()) cases.push_back(CaseOf(way));
  return cases;
}

struct Errors {
  double max = 0;
  double mean = 0;
};

struct Numbers {
  std::string backend = "auto";
  ComputeType compute = ComputeType::kF32;
  KvType kv_type = KvType::kF32;
};

// Of logits at the golden's positions after the first n_prefill tokens as a prompt and the rest decoded.
Errors ErrorsOf(const Case& golden, const Numbers& numbers, std::size_t n_prefill) {
  TinyTransformer tiny({.model = golden.model,
                        .attention = golden.attention,
                        .backend = numbers.backend,
                        .compute = numbers.compute,
                        .kv_type = numbers.kv_type,
                        .add_to_file = golden.add_to_file,
                        .text_tokens = std::ssize(golden.tokens)});
  SequenceState sequence = tiny->NewSequence();
  const std::span<const int32_t> tokens(golden.tokens);
  std::vector<float> hidden = tiny.Prefill(sequence, tokens.first(n_prefill));
  const std::vector<float> decoded = tiny.Decode(sequence, tokens.subspan(n_prefill));
  hidden.insert(hidden.end(), decoded.begin(), decoded.end());

  const std::size_t vocab = static_cast<std::size_t>(golden.model.vocab_size);
  const std::vector<float> logits = tiny.Logits(hidden);
  EXPECT_EQ(logits.size(), tokens.size() * vocab);
  EXPECT_EQ(golden.logits.size(), golden.positions.size() * vocab);
  Errors errors;
  for (std::size_t p = 0; p < golden.positions.size(); ++p) {
    const float* const ours = logits.data() + static_cast<std::size_t>(golden.positions[p]) * vocab;
    const float* const theirs = golden.logits.data() + p * vocab;
    for (std::size_t i = 0; i < vocab; ++i) {
      const double error = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
      errors.max = std::max(errors.max, error);
      errors.mean += error / static_cast<double>(golden.logits.size());
    }
  }
  return errors;
}

class GoldenTest : public testing::TestWithParam<std::tuple<std::string, Case>> {
 protected:
  void SetUp() override {
    const Result<KernelChoice> kernels = ChooseKernels(std::get<0>(GetParam()));
    if (!kernels) GTEST_SKIP() << kernels.error().message;
  }
  const Case& golden() const { return std::get<1>(GetParam()); }
  Errors Run(ComputeType compute, KvType kv_type, std::size_t n_prefill) const {
    return ErrorsOf(golden(), {std::get<0>(GetParam()), compute, kv_type}, n_prefill);
  }
};

// The golden is off the exact logits by `exact_error`: that is what float32 does to this very computation.
// Ours has as many roundings in another order (plain where theirs goes in lanes), for which it may be twice
// as far off on the other side. The mean of errors that are about normal is a quarter of the largest of
// thousands.
double Tolerance(const Case& golden) { return 3 * golden.exact_error; }

TEST_P(GoldenTest, LogitsInFloat32EqualHuggingFaceWithinRounding) {
  const double tolerance = Tolerance(golden());
  for (const std::size_t n_prefill : golden().prefills) {
    const Errors errors = Run(ComputeType::kF32, KvType::kF32, n_prefill);
    EXPECT_LE(errors.max, tolerance) << n_prefill << " tokens in prefill";
    EXPECT_LE(errors.mean, tolerance / 4) << n_prefill << " tokens in prefill";
    RecordProperty("max_error_after_prefill_of_" + std::to_string(n_prefill), std::to_string(errors.max));
  }
}

// bfloat16 rounds the factors of every product, and keys and values as they are stored, by at most 2^-9 where
// float32 rounds by 2^-24; what the model amplifies of one it amplifies of the other. So the golden's own
// rounding error, 2^15 times larger, is a bound; float32 rounds sums besides, which leaves a margin.
TEST_P(GoldenTest, Bfloat16IsOffByItsRoundingsAndNoMore) {
  const std::size_t n = golden().prefills.front();
  const Errors exact = Run(ComputeType::kF32, KvType::kF32, n);
  const double bound = 0x1p15 * golden().exact_error;
  for (const KvType kv_type : {KvType::kF32, KvType::kBF16}) {
    const Errors errors = Run(ComputeType::kBF16, kv_type, n);
    EXPECT_LE(errors.max, bound);
    EXPECT_LE(errors.mean, bound / 4);
    EXPECT_GT(errors.max, 100 * exact.max);  // 2^-9 against 2^-24: bfloat16 did run
    RecordProperty(kv_type == KvType::kF32 ? "max_error_kv_f32" : "max_error_kv_bf16",
                   std::to_string(errors.max));
  }
  if (std::ranges::count(golden().prefills, 0) == 0) return;  // it holds for one prompt alone
  // Decode multiplies in float32 whatever the compute type; bfloat16 keys and values alone show.
  EXPECT_LE(Run(ComputeType::kBF16, KvType::kF32, 0).max, Tolerance(golden()));
  const Errors stored = Run(ComputeType::kBF16, KvType::kBF16, 0);
  EXPECT_LE(stored.max, bound);
  EXPECT_GT(stored.max, 100 * exact.max);
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenTest,
                         testing::Combine(testing::Values("auto", "amx", "avx512bf16", "avx512", "avx2",
                                                          "ref"),
                                          testing::ValuesIn(ReadCases())),
                         [](const auto& test) {
                           std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// What the goldens under schedules see: a schedule left out, an amplitude left out or applied once (to
// queries or keys alone), the other of two tables, another treatment of cached keys. Each is off by a hundred
// tolerances and more.
void ExpectFarOff(const Way& way) {
  const Case c = CaseOf(way);
  EXPECT_GT(ErrorsOf(c, {}, c.prefills.front()).max, 100 * Tolerance(c)) << c.name;
}

TEST(ScaledGoldens, AreFarFromTheLogitsOfOtherSpecs) {
  using enum File;
  const std::vector<Way> others = {
      {"scaled-linear", "plain", kSilent},
      {"scaled-yarn", "plain", kSilent},
      {"scaled-yarn", "no-amplitude", kSilent, "yarn:factor=4:attention_factor=1+full"},
      {"scaled-yarn", "amplitude-once", kSilent, "yarn:factor=4:attention_factor=1.06707+full"},
      {"scaled-yarn-mscale", "no-mscale", kSilent, "yarn:factor=4+full"},
      {"scaled-llama3", "plain", kSilent},
      {"scaled-longrope-long", "short", kDeclares, "longrope:table=short+full"},
      {"scaled-longrope-long", "no-amplitude", kDeclares, "longrope:attention_factor=1+full"},
      {"scaled-longrope-short", "long", kDeclares},
      {"scaled-longrope-short", "no-amplitude", kDeclares, "longrope:table=short:attention_factor=1+full"},
      {"scaled-dynamic", "plain", kSilent},
      {"scaled-dynamic", "other-factor", kSilent, "dynamic-ntk:factor=1+full"},
      {"scaled-dynamic-one-by-one", "freeze", kSilent, "dynamic-ntk:factor=2:mode=freeze+full"},
      {"scaled-dynamic-one-by-one", "exact", kSilent, "dynamic-ntk:factor=2:mode=exact+full"},
  };
  for (const Way& other : others) ExpectFarOff(other);
}

TEST(ScaledGoldens, AreFarFromTheLogitsOfFilesWithAnotherAmplitude) {
  int n_compared = 0;
  for (Way way : Ways()) {
    const double amplitude = EntryOf(way)["amplitude"];
    if (way.file != File::kDeclares || amplitude == 1) continue;
    way.name += "-amplitude-once";
    way.declared_amplitude = std::sqrt(amplitude);
    ExpectFarOff(way);
    ++n_compared;
  }
  EXPECT_GT(n_compared, 0);
}

}  // namespace
}  // namespace longheads
