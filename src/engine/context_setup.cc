#include "engine/context_setup.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/json.h"

namespace longheads {
namespace {

// Values of the library's own allocate as they go away, in destructors, which ends the program where memory
// is short. So none are made here but of single strings and numbers: text is put together, and read event by
// event.

class Members {
 public:
  template <typename T>
  void Put(const char* name, const T& value) {
    PutText(name, JsonLine(value));
  }
  void PutText(const char* name, const std::string& json) {
    text_ += fmt::format("{}{}:{}", text_.empty() ? "" : ",", JsonLine(name), json);
  }
  std::string Text() const { return fmt::format("{{{}}}", text_); }

 private:
  std::string text_;
};

// The values of an object, and of the objects in it as "name.name".
class FlatObject {
 public:
  // Whether it is one, of nothing but strings, numbers, truth values and one more level of objects.
  bool Parse(const std::string& text) { return nlohmann::json::sax_parse(text, this); }

  bool Has(const std::string& name) const { return values_.contains(name); }
  // Of another type or missing: nothing.
  template <typename T>
  std::optional<T> Find(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    if (const T* const value = std::get_if<T>(&found->second)) return *value;
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* const whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
    }
    return std::nullopt;
  }

  // What the library calls.
  bool null() { return false; }
  bool boolean(bool value) { return Put(value); }
  bool number_integer(int64_t value) { return Put(value); }
  bool number_unsigned(uint64_t value) {
    return std::in_range<int64_t>(value) && Put(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) { return Put(value); }
  bool string(std::string& value) { return Put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) {
    if (depth_ == 1) prefix_ = key_ + ".";
    return ++depth_ <= 2;
  }
  bool key(std::string& name) {
    key_ = prefix_ + name;
    return true;
  }
  bool end_object() {
    prefix_.clear();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) { return false; }
  bool end_array() { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) { return false; }

 private:
  using Value = std::variant<bool, int64_t, double, std::string>;
  bool Put(Value value) {
    values_[key_] = std::move(value);
    return depth_ > 0;
  }

  std::map<std::string, Value> values_;
  std::string key_;
  std::string prefix_;
  int depth_ = 0;
};

// Numbers of 64 bits are not safe in every reader's JSON.
std::string Hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> FromHex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Every field of the overrides, by its flag's name.
template <typename Rope, typename Function>
void EachOverride(Rope& rope, const Function& function) {
  function("scaling", rope.scaling);
  function("scale", rope.scale);
  function("freq_base", rope.freq_base);
  function("freq_scale", rope.freq_scale);
  function("orig_ctx", rope.orig_ctx);
  function("ext_factor", rope.ext_factor);
  function("attn_factor", rope.attn_factor);
  function("beta_slow", rope.beta_slow);
  function("beta_fast", rope.beta_fast);
}

}  // namespace

std::string WriteContextSetup(const ContextSetup& setup) {
  Members rope;
  EachOverride(setup.rope, [&rope](const char* name, const auto& value) {
    if (value) rope.Put(name, *value);
  });
  Members all;
  all.Put("program", setup.program);
  all.Put("model", setup.model);
  all.Put("model_fingerprint", Hex(setup.model_fingerprint));
  all.Put("tokenizer_fingerprint", Hex(setup.tokenizer_fingerprint));
  all.Put("attention", setup.attention);
  all.Put("attention_in_full", setup.attention_in_full);
  all.PutText("rope", rope.Text());
  all.Put("compute", setup.compute);
  all.Put("kv_type", setup.kv_type);
  all.Put("expected_tokens", setup.expected_tokens);
  all.Put("block_ram", setup.blocks.ram);
  all.Put("block_parts", setup.blocks.parts);
  all.Put("chat", setup.chat);
  all.Put("source", setup.source);
  return all.Text();
}

Result<ContextSetup> ParseContextSetup(const std::string& path, const std::string& metadata) {
  FlatObject object;
  bool whole = object.Parse(metadata);
  const auto take = [&](const char* name, auto& value) {
    auto found = object.Find<std::remove_reference_t<decltype(value)>>(name);
    whole = whole && found;
    if (found) value = *std::move(found);
  };
  const auto take_count = [&](const char* name, int64_t& value) {
    take(name, value);
    whole = whole && value >= 0 && value <= kMostCount;
  };
  const auto take_hex = [&](const char* name, uint64_t& value) {
    const std::optional<uint64_t> found = FromHex(object.Find<std::string>(name).value_or("none"));
    whole = whole && found;
    value = found.value_or(0);
  };
  ContextSetup setup;
  take("program", setup.program);
  take("model", setup.model);
  take_hex("model_fingerprint", setup.model_fingerprint);
  take_hex("tokenizer_fingerprint", setup.tokenizer_fingerprint);
  take("attention", setup.attention);
  take("attention_in_full", setup.attention_in_full);
  EachOverride(setup.rope, [&](const char* name, auto& value) {
    value = object.Find<typename std::remove_reference_t<decltype(value)>::value_type>(std::string("rope.") +
                                                                                       name);
  });
  take("compute", setup.compute);
  take("kv_type", setup.kv_type);
  take_count("expected_tokens", setup.expected_tokens);
  take_count("block_ram", setup.blocks.ram);
  if (object.Has("block_parts")) {  // files of earlier programs do not say it, and had the most
    take("block_parts", setup.blocks.parts);
    whole = whole && setup.blocks.parts >= 1 && setup.blocks.parts <= BlockFit::kMostParts;
  }
  take("chat", setup.chat);
  take("source", setup.source);
  if (whole) return setup;
  return InvalidInput(
      fmt::format("{}: the header does not say what the text was read with, as longheads writes it", path));
}

}  // namespace longheads
