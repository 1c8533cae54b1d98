#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace longheads {
namespace {

TEST(Json, ComesBackAsItWasInOrder) {
  const std::string line = R"({"z":[1,2.5,null,true],"a":{"b":"line\nend"}})";
  EXPECT_EQ(JsonLine(ParseJson(line)), line);
  EXPECT_EQ(JsonLine("a\xff"), "\"a\xEF\xBF\xBD\"");
}

TEST(Json, WhatIsNoneOrTooDeepThrows) {
  for (const char* text : {"", "{", "[1,", "nul", "\"\xff\"", "1 2"}) {
    EXPECT_THROW(ParseJson(text), nlohmann::json::exception) << text;
  }
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(JsonLine(ParseJson(nested(60))), nested(60));
  EXPECT_THROW(ParseJson(nested(70)), nlohmann::json::exception);
  EXPECT_THROW(ParseJson(nested(1'000'000)), nlohmann::json::exception);
}

TEST(Json, ADamagedBookIsNotQuoted) {
  try {
    ParseJson("{\"context\": \"" + std::string(1'000'000, 'x'));
    FAIL() << "its string does not end";
  } catch (const nlohmann::json::exception& error) {
    EXPECT_LT(std::string(error.what()).size(), 300U);
    EXPECT_NE(std::string(error.what()).find("line 1, column 1000014"), std::string::npos) << error.what();
  }
}

TEST(Json, ACountIsAWholeNumberOfASensibleSize) {
  const nlohmann::ordered_json json = ParseJson(
      R"({"none":0,"most":281474976710656,"more":281474976710657,"huge":18446744073709551615,"less":-1,"half":0.5,)"
      R"("float":1e300,"text":"1"})");
  EXPECT_EQ(JsonCount(json, "none"), 0);
  EXPECT_EQ(JsonCount(json, "most"), int64_t{1} << 48);
  EXPECT_EQ(JsonCount(json, "more", INT64_MAX), (int64_t{1} << 48) + 1);
  EXPECT_THROW(JsonCount(json, "most", 1000), nlohmann::json::exception);
  for (const char* name : {"more", "huge", "less", "half", "float", "text", "missing"}) {
    EXPECT_THROW(JsonCount(json, name), nlohmann::json::exception) << name;
  }
}

TEST(Json, ANumberIsInItsRange) {
  const nlohmann::ordered_json json = ParseJson(R"({"one":1,"half":0.5,"text":"1"})");
  EXPECT_EQ(JsonNumber(json, "one", 0, 1), 1);
  EXPECT_EQ(JsonNumber(json, "half", 0.5, 1), 0.5);
  EXPECT_THROW(JsonNumber(json, "half", 0.6, 1), nlohmann::json::exception);
  EXPECT_THROW(JsonNumber(json, "one", 0, 0.9), nlohmann::json::exception);
  EXPECT_THROW(JsonNumber(json, "text", 0, 1), nlohmann::json::exception);
}

}  // namespace
}  // namespace longheads
