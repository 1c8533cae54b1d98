// Text gets into pages and drawings as text alone.
#include "report/html.h"

#include <gtest/gtest.h>

#include "report/svg.h"

namespace longheads {
namespace {

TEST(EscapeHtml, LeavesNothingThatMeansSomething) {
  EXPECT_EQ(EscapeHtml("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  EXPECT_EQ(EscapeHtml("</script><script>alert(1)</script>"),
            "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;");
  EXPECT_EQ(EscapeHtml("&amp;"), "&amp;amp;");
  EXPECT_EQ(EscapeHtml("tab\tand\nline"), "tab\tand\nline");
}

TEST(EscapeHtml, RepairsWhatIsNoText) {
  EXPECT_EQ(EscapeHtml(std::string("a\0b", 3)),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(EscapeHtml("\x1b[31m"), "\xEF\xBF\xBD[31m");
  EXPECT_EQ(EscapeHtml("\xff\xfe"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(EscapeHtml("\xe2\x82"), "\xEF\xBF\xBD");
  EXPECT_EQ(EscapeHtml("na\xc3\xafve"), "na\xc3\xafve");
}

TEST(JsonBlock, CannotBeLeft) {
  const std::string hostile = "</script><!--<script>\xe2\x80\xa8&\xff";
  const std::string block = JsonBlock("data", {{"text", hostile}});
  const std::string inside = block.substr(block.find('>') + 1, block.rfind('<') - block.find('>') - 1);
  EXPECT_EQ(inside.find_first_of("<>&"), std::string::npos) << inside;
  for (const char c : inside) EXPECT_TRUE(static_cast<unsigned char>(c) < 0x80);
  EXPECT_EQ(nlohmann::json::parse(inside)["text"], "</script><!--<script>\xe2\x80\xa8&\xEF\xBF\xBD");
}

TEST(PageHtml, LoadsNothing) {
  const std::string page = PageHtml({.title = "<b>", .style = "", .body = "<p>x</p>\n", .script = ""});
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("<title>&lt;b&gt;</title>"), std::string::npos);
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
}

TEST(Base64, IsThatOfTheStandard) {  // RFC 4648, section 10
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foob"), "Zm9vYg==");
  EXPECT_EQ(Base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64("\xff\xfe\xfd"), "//79");
}

TEST(Svg, KeepsTextAsText) {
  Svg svg(10, 10, "a</title><script>", "b</desc>");
  svg.Text(1, 2, "<script>alert('x')</script>&", {.turn = -90});
  const std::string file = svg.Standalone();
  EXPECT_EQ(file.find("<script"), std::string::npos);
  EXPECT_NE(file.find("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;"), std::string::npos);
  EXPECT_NE(file.find("<title>a&lt;/title&gt;&lt;script&gt;</title>"), std::string::npos);
  EXPECT_EQ(svg.Inline().find("xmlns"), std::string::npos);
}

}  // namespace
}  // namespace longheads
