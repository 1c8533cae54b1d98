#include "eval/prompt_format.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

const PromptFields kFields = {{"context", "LONG {input}"}, {"input", "why?"}};

TEST(PromptFormat, FieldsAreFilledOnceAndTheContextsEndIsKnown) {
  const Result<FilledPrompt> prompt = FillPrompt("Read:\n{context}\nQ: {input}", kFields, "context");
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->text, "Read:\nLONG {input}\nQ: why?");  // braces in a text are text
  EXPECT_EQ(prompt->text.substr(0, prompt->marked_end), "Read:\nLONG {input}");
}

TEST(PromptFormat, DoubledBracesAreBraces) {
  EXPECT_EQ(FillPrompt("{{\"a\": {input}}}", kFields, "context")->text, "{\"a\": why?}");
}

TEST(PromptFormat, WithoutTheMarkedFieldAllIsBeforeItsEnd) {
  EXPECT_EQ(FillPrompt("{input}!", kFields, "context")->marked_end, 5U);
}

TEST(PromptFormat, UnknownFieldsAndSingleBracesAreNamed) {
  EXPECT_NE(FillPrompt("{question}", kFields, "context").error().message.find("{question}"),
            std::string::npos);
  EXPECT_FALSE(FillPrompt("a } b", kFields, "context"));
  EXPECT_FALSE(FillPrompt("a {input", kFields, "context"));
}

TEST(PromptFormat, JsonOfPromptsAndOfLimits) {
  EXPECT_EQ(ParsePromptJson(R"({"qasper": "A\n{context}"})", "f.json")->at("qasper"), "A\n{context}");
  EXPECT_EQ(ParsePromptJson(R"({"qasper": 3})", "f.json").error().message, "f.json: \"qasper\" is no string");
  EXPECT_FALSE(ParsePromptJson("[]", "f.json"));
  EXPECT_FALSE(ParsePromptJson("{", "f.json"));
  EXPECT_EQ(ParseLimitsJson(R"({"qasper": 128})", "f.json")->at("qasper"), 128);
  EXPECT_FALSE(ParseLimitsJson(R"({"qasper": 0})", "f.json"));
  EXPECT_FALSE(ParseLimitsJson(R"({"qasper": 1.5})", "f.json"));
}

constexpr std::string_view kPython = R"PY(
# templates
other = {"passkey": "wrong"}
yarn = {
    # "passkey": "commented out",
    "passkey": "Find it.\n\n{context}\\",  # noqa
    'kv': 'one' + "two" "three",
    "zh": "\u95ee" + '问\'s',
}
)PY";

TEST(PromptFormat, PythonDictionariesOfStrings) {
  const auto prompts = ParsePromptPython(kPython, "yarn", "prompt.py");
  ASSERT_TRUE(prompts) << prompts.error().message;
  EXPECT_EQ(prompts->size(), 3U);
  EXPECT_EQ(prompts->at("passkey"), "Find it.\n\n{context}\\");
  EXPECT_EQ(prompts->at("kv"), "onetwothree");
  EXPECT_EQ(prompts->at("zh"), "问问's");
}

TEST(PromptFormat, WhatIsNoSuchPythonIsRefusedWithItsLine) {
  EXPECT_NE(ParsePromptPython(kPython, "gpt", "p.py").error().message.find("gpt"), std::string::npos);
  EXPECT_EQ(ParsePromptPython("t = {\n\"a\" \"b\"", "t", "p.py").error().message,
            "p.py, line 2: expected ':' behind a key");
  for (const char* text :
       {"t = {", "t = {\"a\": 3}", "t = {\"a\": \"b", "t = {\"a\": \"\\q\"}", "t = {\"a\": \"\\u12\"}",
        "t = {\"a\": (\"b\"", "t = {\"a\": \"b\" \"", "t = {\"a\": \"\\ud800\"}", "t = {\"a\": \"\\"}) {
    EXPECT_FALSE(ParsePromptPython(text, "t", "p.py")) << text;
  }
}

}  // namespace
}  // namespace longheads
