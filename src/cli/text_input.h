// The text a command works on: from an option, a file or standard input.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/input_file.h"

namespace longheads {

struct TextInput {
  std::string text;         // -p
  std::string file;         // -f
  bool from_stdin = false;  // -
  bool has_text = false;
};

// -p TEXT | -f FILE | - ; in the group `group`. Exactly one must be given (ReadText says so).
void AddTextInput(CLI::App& app, TextInput& input, const std::string& group);

// The bytes as they are. At most 1 GiB.
Result<std::string> ReadText(const TextInput& input);

Result<std::string> ReadStdin();

// Refuses what is no UTF-8, unless U+FFFD shall be read in its place; `note` says where it is then, else it is empty.
// `what` is how a message names it.
Status CheckUtf8(const std::string& text, bool replace_invalid, std::string& note,
                 std::string_view what = "the text");

}  // namespace longheads
