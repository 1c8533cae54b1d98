// The text a command works on: from an option, a file or standard input.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"

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

// The whole of a regular file or of a pipe.
Result<std::string> ReadFile(const std::string& path);
Result<std::string> ReadStdin();

// Where the text stops being UTF-8, as a sentence; empty where it is UTF-8.
std::string DescribeInvalidUtf8(std::string_view text);

}  // namespace longheads
