// JSON as it comes from files and goes to them, a value a line.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace longheads {

// Throws nlohmann::json::exception where the text is no JSON, or nested deeper than 64: to copy and to print
// a value is a recursion, which no stack survives at any depth. What it says is short, however long the text.
nlohmann::ordered_json ParseJson(std::string_view text);

// The whole number that a value, of this name, or json[name] is, from 0 on; up to 2^48 sums of a few thousand
// cannot overflow. Throws as ParseJson does.
inline constexpr int64_t kMostCount = int64_t{1} << 48;
int64_t ToCount(const nlohmann::ordered_json& value, const char* name, int64_t most = kMostCount);
int64_t JsonCount(const nlohmann::ordered_json& json, const char* name, int64_t most = kMostCount);

// The number json[name], from least to most. Throws as ParseJson does.
double JsonNumber(const nlohmann::ordered_json& json, const char* name, double least, double most);

// On one line, without its end. Bytes that are no UTF-8, as a file name may hold, become U+FFFD.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace longheads
