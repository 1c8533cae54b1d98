// Pages that need nothing but themselves: text made safe for HTML and for data in scripts, and the frame of a
// page. What a page shows is for those who make it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace longheads {

// Text for an element or a quoted attribute: whatever it holds, it is shown and does nothing. Ill-formed
// UTF-8 and control characters other than tab and newline become U+FFFD.
std::string EscapeHtml(std::string_view text);

// A data block for a script to read: nothing in it ends the block, or begins another one.
std::string JsonBlock(std::string_view id, const nlohmann::json& data);

struct HtmlPage {
  std::string title;   // text
  std::string style;   // CSS
  std::string body;    // HTML
  std::string script;  // JavaScript; may be empty
};

// The file. Its policy forbids the browser to load or send anything.
std::string PageHtml(const HtmlPage& page);

std::string Base64(std::string_view bytes);

}  // namespace longheads
