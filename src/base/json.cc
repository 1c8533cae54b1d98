#include "base/json.h"

#include <nlohmann/json.hpp>
#include <string>

namespace longheads {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 64;
constexpr std::size_t kMostSaid = 200;  // bytes

}  // namespace

Json ParseJson(std::string_view text) try {
  return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth)
      throw nlohmann::json::other_error::create(501, "it is nested too deeply", nullptr);
    return true;
  });
} catch (const nlohmann::json::parse_error& error) {
  const std::string said = error.what();
  if (said.size() <= kMostSaid) throw;
  // The library quotes all that it has read of a string, which may be a book.
  throw nlohmann::json::other_error::create(501, said.substr(0, kMostSaid) + "...", nullptr);
}

int64_t ToCount(const Json& value, const char* name, int64_t most) {
  if (!value.is_number_integer() || value < 0 || value > most) {
    throw nlohmann::json::other_error::create(501, std::string("'") + name + "' is no count", nullptr);
  }
  return value;
}

int64_t JsonCount(const Json& json, const char* name, int64_t most) {
  return ToCount(json.at(name), name, most);
}

double JsonNumber(const Json& json, const char* name, double least, double most) {
  const double value = json.at(name);
  if (!(value >= least && value <= most)) {
    throw nlohmann::json::other_error::create(501, std::string("'") + name + "' is out of its range",
                                              nullptr);
  }
  return value;
}

std::string JsonLine(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace longheads
