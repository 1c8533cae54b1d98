#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "tokenizer/golden_cases.h"
#include "tokenizer/jinja_canonical.h"
#include "tests/support/sanitized.h"

namespace longheads {
namespace {

const nlohmann::json& Goldens() {
  static const nlohmann::json json = [] {
    std::ifstream file(GoldenPath("chat.json"), std::ios::binary);
    return ParseGolden(GoldenPath("chat.json"), {std::istreambuf_iterator<char>(file), {}});
  }();
  return json;
}

std::vector<ChatMessage> Messages(const nlohmann::json& chat) {
  std::vector<ChatMessage> messages;
  for (const auto& message : chat) messages.push_back({message.at("role"), message.at("content")});
  return messages;
}

// Where Jinja would drop a message in silence, we refuse instead.
bool DropsAMessage(std::string_view family, const std::vector<ChatMessage>& messages) {
  if (family != "llama-2") return false;
  if (messages.size() == 1 && messages[0].role == "system") return true;
  for (size_t i = 1; i < messages.size(); ++i) {
    if (messages[i].role == "system") return true;
  }
  return false;
}

TEST(ChatTemplate, RendersWhatJinjaRendersForEveryPublishedTemplate) {
  size_t n_rendered = 0;
  for (const auto& golden : Goldens().at("templates")) {
    const auto recognised = ChatTemplate::Recognise(golden.at("template").get<std::string>());
    ASSERT_TRUE(recognised.has_value()) << recognised.error().message;
    const std::string name = golden.at("name");
    const std::string bos = golden.at("bos"), eos = golden.at("eos");
    EXPECT_EQ(recognised->name(), name);
    for (size_t i = 0; i < Goldens().at("chats").size(); ++i) {
      const std::vector<ChatMessage> messages = Messages(Goldens().at("chats")[i]);
      const auto& with_and_without = golden.at("rendered")[i];
      for (size_t j = 0; j < with_and_without.size(); ++j) {
        const auto& expected = with_and_without[j];
        const auto rendered = recognised->Render(messages, /*add_generation_prompt=*/j == 0, bos, eos);
        if (expected.is_null() || DropsAMessage(name, messages)) {
          EXPECT_FALSE(rendered.has_value()) << name << " chat " << i << ": " << *rendered;
          continue;
        }
        ASSERT_TRUE(rendered.has_value()) << name << " chat " << i << ": " << rendered.error().message;
        EXPECT_EQ(*rendered, expected.get<std::string>()) << name << " chat " << i;
        if (!bos.empty() && !name.starts_with("chatml")) {
          EXPECT_EQ(recognised->writes_bos(), rendered->starts_with(bos)) << name;
        }
        ++n_rendered;
      }
    }
  }
  EXPECT_GT(n_rendered, 200u);
}

TEST(ChatTemplate, AnUnknownTemplateIsRefusedWithItsBeginningAndTheWayOut) {
  for (const auto& unknown : Goldens().at("unknown")) {
    const std::string text = unknown;
    const auto recognised = ChatTemplate::Recognise(text);
    ASSERT_FALSE(recognised.has_value()) << text << " taken for " << recognised->name();
    EXPECT_EQ(recognised.error().kind, ErrorKind::kUnsupported);
    EXPECT_NE(recognised.error().message.find("--no-chat"), std::string::npos);
    EXPECT_EQ(recognised.error().message.find('\n'), std::string::npos);
    if (text.starts_with("{{ messages }}")) {
      EXPECT_NE(recognised.error().message.find("\"{{ messages }}\""), std::string::npos);
    }
  }
}

TEST(ChatTemplate, ATemplateCutAnywhereIsNotTakenForAnother) {
  for (const auto& golden : Goldens().at("templates")) {
    const std::string text = golden.at("template");
    const std::string canonical = CanonicalJinja(text);
    for (size_t bytes = 0; bytes < text.size(); bytes += kSanitized ? 7 : 1) {
      const auto recognised = ChatTemplate::Recognise(text.substr(0, bytes));
      EXPECT_TRUE(!recognised || CanonicalJinja(text.substr(0, bytes)) == canonical)
          << bytes << " of " << text;
    }
  }
}

TEST(ChatTemplate, NoMessagesAndUnknownRolesAreRefused) {
  const auto smollm2 =
      ChatTemplate::Recognise(Goldens().at("templates")[0].at("template").get<std::string>());
  ASSERT_TRUE(smollm2.has_value());
  EXPECT_FALSE(smollm2->Render({}, true, "", "").has_value());
  const std::vector<ChatMessage> messages = {{"tool", "{}"}};
  const auto rendered = smollm2->Render(messages, true, "", "");
  ASSERT_FALSE(rendered.has_value());
  EXPECT_NE(rendered.error().message.find("tool"), std::string::npos);
}

TEST(JinjaCanonical, SpellingsThatRenderAlikeAreOne) {
  const std::string canonical = CanonicalJinja("{{ 'a\nb' + x['c'] | trim }}");
  for (const char* text :
       {"{{'a\\nb'+x['c']|trim}}", "{{ \"a\\n\" + 'b' + x.c | trim }}", "{{- 'a\nb' + x.c.strip() -}}",
        "{# c #}{{ 'a\\nb' + x.c | trim }}", "{{ 'a\nb'\n + x[\"c\"] | trim }}\n"}) {
    EXPECT_EQ(CanonicalJinja(text), canonical) << text;
  }
}

TEST(JinjaCanonical, WhatIsPrintedBetweenTagsFollowsTheBlockRules) {
  EXPECT_EQ(CanonicalJinja("{% if a %}\n  b\n  {% endif %}\nc\n"), "{%if a%}  b\n{%endif%}c");
  EXPECT_EQ(CanonicalJinja("{{ a }}\n{{ b }}"), "{{a}}\n{{b}}");
  EXPECT_EQ(CanonicalJinja(" x  {%- if a -%}  \n y {% endif %}"), " x{%if a%}y {%endif%}");
  EXPECT_EQ(CanonicalJinja("  {%+ if a +%}\nx"), "  {%if a%}\nx");
  EXPECT_EQ(CanonicalJinja("{{ '%}' }}{{ '}}' }}"),
            std::string("{{\x01%}\x02}}") + std::string("{{\x01}}\x02}}"));
}

}  // namespace
}  // namespace longheads
