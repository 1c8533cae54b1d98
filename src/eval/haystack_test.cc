#include "eval/haystack.h"

#include <gtest/gtest.h>

#include "eval/task.h"
#include "eval/tiny_engine_for_test.h"
#include "tests/support/cache_folder.h"

namespace longheads {
namespace {

std::string Paragraphs(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "Paragraph " + std::to_string(i) + " says gr\xc3\xbc\xc3\x9f.\n\n";
  return text;
}

TEST(Haystack, PiecesBeginAtParagraphsAndGoOnAtTheTextsBeginning) {
  const std::string text = Paragraphs(100);
  const Haystack haystack = Haystack::FromText("text", text);
  EXPECT_EQ(haystack.Bytes(0, 40), text.substr(0, 40));
  for (int64_t number = 1; number < 8; ++number) {
    const std::string piece = haystack.Bytes(number, 200);
    EXPECT_TRUE(piece.starts_with("Paragraph ")) << piece;
    EXPECT_EQ(haystack.Bytes(number, 100), piece.substr(0, 100));
  }
  EXPECT_NE(haystack.Bytes(1, 20), haystack.Bytes(2, 20));
  const std::string round = haystack.Bytes(0, text.size() + 13);
  EXPECT_EQ(round, text + "Paragraph 0 s");
}

TEST(Haystack, NoCharacterIsCut) {
  const Haystack haystack = Haystack::FromText("text", "\xc3\xbc\xc3\xbc\xf0\x9f\x98\x80x");
  EXPECT_EQ(haystack.Bytes(0, 1), "");
  EXPECT_EQ(haystack.Bytes(0, 2), "\xc3\xbc");
  EXPECT_EQ(haystack.Bytes(0, 3), "\xc3\xbc");
  EXPECT_EQ(haystack.Bytes(0, 7), "\xc3\xbc\xc3\xbc");
  EXPECT_EQ(haystack.Bytes(0, 8), "\xc3\xbc\xc3\xbc\xf0\x9f\x98\x80");
}

TEST(Haystack, TokensAreThoseOfTheTextAndAsManyAsWanted) {
  const TestDirectory directory;
  const auto engine = TinyEngine(directory, "full");
  const Haystack haystack = Haystack::FromText("text", Paragraphs(100));
  for (const int64_t n : {0, 1, 300, 20000}) {  // the last is more than the text has
    const auto tokens = haystack.Tokens(engine->tokenizer(), 0, n, nullptr);
    ASSERT_TRUE(tokens);
    EXPECT_EQ(static_cast<int64_t>(tokens->size()), n);
    const std::string text = engine->tokenizer().Decode(*tokens, /*special=*/false);
    if (n == 300) {
      EXPECT_TRUE(Paragraphs(100).starts_with(text));
    }
  }
}

TEST(Haystack, RefusesWhatIsNoHaystack) {
  const TestDirectory directory;
  EXPECT_FALSE(Haystack::Load(directory.File("none")));
  AppendText(directory.File("short"), "word");
  const auto short_one = Haystack::Load(directory.File("short"));
  ASSERT_FALSE(short_one);
  EXPECT_NE(short_one.error().message.find("at least 1000"), std::string::npos);
  AppendText(directory.File("long"), Paragraphs(100));
  const auto haystack = Haystack::Load(directory.File("long"));
  ASSERT_TRUE(haystack);
  EXPECT_EQ(haystack->name(), "long");
  EXPECT_EQ(haystack->hash().size(), 16u);
}

// As NeedleBench's essays are: other keys beside `text`, and characters as JSON escapes them.
TEST(Haystack, OfJsonlIsTheTextOfItsLines) {
  const TestDirectory directory;
  const std::string text = Paragraphs(60);
  const std::size_t cut = text.find("Paragraph 30");
  const std::string path = directory.File("Essays.jsonl");
  AppendText(path, Json{{"title", "One"}, {"text", text.substr(0, cut)}}.dump() + "\n\n");
  AppendText(path, Json{{"text", text.substr(cut)}}.dump(-1, ' ', /*ensure_ascii=*/true));  // no line end
  const auto haystack = Haystack::Load(path);
  ASSERT_TRUE(haystack) << haystack.error().message;
  EXPECT_EQ(haystack->name(), "Essays.jsonl");
  EXPECT_EQ(haystack->Bytes(0, text.size()), text);
  EXPECT_EQ(haystack->hash(), Haystack::FromText("", text).hash());
}

TEST(Haystack, NamesTheLineOfAJsonlThatHasNoText) {
  const TestDirectory directory;
  int number = 0;
  for (const std::string bad : {R"({"text": "cut)", "no JSON", R"({"title": "x"})", R"({"text": 1})", "[1]",
                                R"("text")", "{\"text\": \"\xff\"}"}) {
    const std::string path = directory.File(std::to_string(number++) + ".jsonl");
    AppendText(path, Json{{"text", Paragraphs(60)}}.dump() + "\n" + bad + "\n");
    const auto haystack = Haystack::Load(path);
    ASSERT_FALSE(haystack) << bad;
    const std::string& message = haystack.error().message;
    EXPECT_NE(message.find(path + ", line 2 is no object with a 'text'"), std::string::npos) << message;
  }
  AppendText(directory.File("short.jsonl"), Json{{"text", "word"}, {"more", Paragraphs(60)}}.dump());
  EXPECT_FALSE(Haystack::Load(directory.File("short.jsonl")));
  AppendText(directory.File("empty.jsonl"), "");
  EXPECT_FALSE(Haystack::Load(directory.File("empty.jsonl")));
  EXPECT_FALSE(Haystack::Load(directory.File("none.jsonl")));
}

TEST(Haystack, SaysHowToGetTheDefaultOne) {
  const CacheFolder cache;
  const auto haystack = Haystack::Load("");
  ASSERT_FALSE(haystack);
  EXPECT_NE(haystack.error().message.find("sh tools/eval/text.sh austen"), std::string::npos);
}

}  // namespace
}  // namespace longheads
