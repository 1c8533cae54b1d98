#include "engine/context_setup.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"

namespace longheads {
namespace {

using Json = nlohmann::ordered_json;

// Numbers of 64 bits are not safe in every reader's JSON.
std::string Hex(uint64_t value) { return fmt::format("{:016x}", value); }

uint64_t FromHex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw nlohmann::json::other_error::create(501, "", nullptr);
  return value;
}

template <typename T>
void Put(Json& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

template <typename T>
void Take(const Json& json, const char* name, std::optional<T>& value) {
  if (json.contains(name)) value = json.at(name).get<T>();
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
  Json rope = Json::object();
  EachOverride(setup.rope, [&rope](const char* name, const auto& value) { Put(rope, name, value); });
  const Json json = {{"program", setup.program},
                     {"model", setup.model},
                     {"model_fingerprint", Hex(setup.model_fingerprint)},
                     {"tokenizer_fingerprint", Hex(setup.tokenizer_fingerprint)},
                     {"attention", setup.attention},
                     {"attention_in_full", setup.attention_in_full},
                     {"rope", rope},
                     {"compute", setup.compute},
                     {"kv_type", setup.kv_type},
                     {"expected_tokens", setup.expected_tokens},
                     {"block_ram", setup.block_ram},
                     {"chat", setup.chat},
                     {"source", setup.source}};
  return JsonLine(json);
}

Result<ContextSetup> ParseContextSetup(const std::string& path, const std::string& metadata) try {
  const Json json = ParseJson(metadata);
  ContextSetup setup{.program = json.at("program"),
                     .model = json.at("model"),
                     .model_fingerprint = FromHex(json.at("model_fingerprint")),
                     .tokenizer_fingerprint = FromHex(json.at("tokenizer_fingerprint")),
                     .attention = json.at("attention"),
                     .attention_in_full = json.at("attention_in_full"),
                     .rope = {},
                     .compute = json.at("compute"),
                     .kv_type = json.at("kv_type"),
                     .expected_tokens = JsonCount(json, "expected_tokens"),
                     .block_ram = JsonCount(json, "block_ram"),
                     .chat = json.at("chat"),
                     .source = json.at("source")};
  const Json& rope = json.at("rope");
  EachOverride(setup.rope, [&rope](const char* name, auto& value) { Take(rope, name, value); });
  return setup;
} catch (const nlohmann::json::exception&) {
  return InvalidInput(
      fmt::format("{}: the header does not say what the text was read with, as longheads writes it", path));
}

}  // namespace longheads
