#include "report/html.h"

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace longheads {

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : ReplaceIllFormedUtf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
          out += kReplacementCharacter;
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string JsonBlock(std::string_view id, const nlohmann::json& data) {
  std::string out = fmt::format("<script type=\"application/json\" id=\"{}\">", id);
  // ASCII alone; a '<' could end the block.
  for (const char c : data.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace)) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "</script>\n";
}

std::string PageHtml(const HtmlPage& page) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n";
  out += fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{}", EscapeHtml(page.title),
                     page.style, page.body);
  if (!page.script.empty()) out += fmt::format("<script>\n{}</script>\n", page.script);
  return out + "</body>\n</html>\n";
}

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out += at + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return out;
}

}  // namespace longheads
