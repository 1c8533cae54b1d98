// The text a command works on: from an option, a file or standard input.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

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

}  // namespace longheads
