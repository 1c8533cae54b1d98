#include "model/gguf_rope.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace longheads {
namespace {

class RopeReader {
 public:
  RopeReader(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  bool Has(const std::string& key) const { return file_.Find(prefix_ + key) != nullptr; }
  Result<std::optional<double>> Float(const std::string& key) const {
    if (!Has(key)) return std::optional<double>();
    LH_ASSIGN(const double value, file_.GetFloat(prefix_ + key));
    if (!std::isfinite(value)) {
      return InvalidInput(fmt::format("{}: {}{} is {}", file_.name(), prefix_, key, value));
    }
    return std::optional<double>(value);
  }
  Result<double> FloatOr(const std::string& key, double otherwise) const {
    LH_ASSIGN(const std::optional<double> value, Float(key));
    return value.value_or(otherwise);
  }
  // Tokens; 0 where the key is not there.
  Result<int64_t> Tokens(const std::string& key) const {
    if (!Has(key)) return 0;
    LH_ASSIGN(const int64_t value, file_.GetInt(prefix_ + key));
    constexpr int64_t kMost = int64_t{1} << 40;
    if (value < 1 || value > kMost) {
      return InvalidInput(fmt::format("{}: {}{} is {}", file_.name(), prefix_, key, value));
    }
    return value;
  }
  // Empty where the tensor is not there.
  Result<std::vector<float>> Tensor(const std::string& name, int64_t n_pairs) const {
    const TensorView* const tensor = file_.FindTensor(name);
    if (tensor == nullptr) return std::vector<float>();
    if (tensor->type != DType::kF32 || tensor->elements() != n_pairs) {
      return InvalidInput(
          fmt::format("{}: {} must hold {} numbers of type F32", file_.name(), name, n_pairs));
    }
    const float* const values = reinterpret_cast<const float*>(tensor->data);
    return std::vector<float>(values, values + n_pairs);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// By name, by the factor alone (linear), or by LongRoPE's tables alone, as Phi-3's files have it.
Result<RopeScaling> ReadScaling(const GgufFile& file, const RopeReader& reader, std::string_view prefix,
                                bool has_factor, bool has_tables) {
  RopeScaling scaling =
      has_tables ? RopeScaling::kLongrope : (has_factor ? RopeScaling::kLinear : RopeScaling::kNone);
  if (!reader.Has("rope.scaling.type")) return scaling;
  const std::string key = fmt::format("{}rope.scaling.type", prefix);
  LH_ASSIGN(const std::string name, file.GetString(key));
  const std::optional<RopeScaling> named = RopeScalingOf(name);
  if (!named) {
    return Unsupported(
        fmt::format("{}: the model declares RoPE scaling '{}', which is not served yet (none, linear, yarn, "
                    "longrope and a rope_freqs tensor are)",
                    file.name(), name));
  }
  if ((*named == RopeScaling::kLongrope) != has_tables) {
    return InvalidInput(
        fmt::format("{}: the model declares RoPE scaling '{}', but {} tables of LongRoPE factors",
                    file.name(), name, has_tables ? "holds" : "has no"));
  }
  return *named;
}

}  // namespace

Result<RopeDeclaration> ReadRope(const GgufFile& file, std::string_view prefix, int64_t rotary_dim,
                                 int64_t context_length) {
  const RopeReader reader(file, prefix);
  RopeDeclaration rope{.rotary_dim = rotary_dim, .context_length = context_length};
  LH_ASSIGN(rope.base, reader.FloatOr("rope.freq_base", 10000));
  LH_ASSIGN(rope.divisors, reader.Tensor("rope_freqs.weight", rotary_dim / 2));
  LH_ASSIGN(rope.short_factors, reader.Tensor("rope_factors_short.weight", rotary_dim / 2));
  LH_ASSIGN(rope.long_factors, reader.Tensor("rope_factors_long.weight", rotary_dim / 2));
  const bool has_tables = !rope.short_factors.empty() || !rope.long_factors.empty();
  if (has_tables && !rope.divisors.empty()) {
    return InvalidInput(
        fmt::format("{}: rope_freqs.weight and LongRoPE's tables of factors are both there, but only one can "
                    "hold",
                    file.name()));
  }
  LH_ASSIGN(const double linear, reader.FloatOr("rope.scale_linear", 0));  // the old name
  LH_ASSIGN(const double factor, reader.FloatOr("rope.scaling.factor", linear));
  LH_ASSIGN(rope.scaling, ReadScaling(file, reader, prefix, factor != 0, has_tables));
  LH_ASSIGN(rope.original_context, reader.Tokens("rope.scaling.original_context_length"));
  if (rope.scaling != RopeScaling::kNone && factor != 0) rope.factor = factor;
  if (rope.scaling == RopeScaling::kYarn && factor == 0 && rope.original_context > 0) {
    rope.factor = static_cast<double>(context_length) / static_cast<double>(rope.original_context);
  }
  LH_ASSIGN(rope.attn_factor, reader.Float("rope.scaling.attn_factor"));
  LH_ASSIGN(rope.log_multiplier, reader.FloatOr("rope.scaling.yarn_log_multiplier", 0));
  LH_ASSIGN(rope.beta_fast, reader.FloatOr("rope.scaling.yarn_beta_fast", rope.beta_fast));
  LH_ASSIGN(rope.beta_slow, reader.FloatOr("rope.scaling.yarn_beta_slow", rope.beta_slow));
  LH_ASSIGN(const double ext_factor, reader.FloatOr("rope.scaling.yarn_ext_factor", rope.ext_factor));
  if (ext_factor >= 0) rope.ext_factor = ext_factor;  // below: not said
  // Converters write Hugging Face's attention_factor here, and 1 where there was none.
  LH_ASSIGN(const double magnitude, reader.FloatOr("rope.scaling.yarn_attn_factor", 1));
  if (magnitude != 1) rope.magnitude = magnitude;

  if (const Result<Frequencies> valid = DeclaredFrequencies(rope, context_length); !valid) {
    return InvalidInput(fmt::format("{}: {}", file.name(), valid.error().message));
  }
  return rope;
}

}  // namespace longheads
