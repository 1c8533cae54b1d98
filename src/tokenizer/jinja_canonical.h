// One spelling for Jinja templates that render alike, so that two can be compared as text. Knows Jinja's
// syntax of tags, strings and whitespace control as transformers sets it (trim_blocks, lstrip_blocks);
// evaluates nothing.
#pragma once

#include <string>
#include <string_view>

namespace longheads {

// What stands round a string constant in the canonical text, instead of quotes.
inline constexpr char kStringBegin = '\x01';
inline constexpr char kStringEnd = '\x02';

// Tags without comments and needless spaces, strings with their escapes resolved and joined where they are
// added, `a.b` as `a['b']`, `.strip()` as `|trim`; between the tags the text that is printed.
std::string CanonicalJinja(std::string_view text);

}  // namespace longheads
