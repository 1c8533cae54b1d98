#include "cli/text_input.h"

#include <fmt/format.h>

#include <cstdio>

namespace longheads {

void AddTextInput(CLI::App& app, TextInput& input, const std::string& group) {
  app.add_option_function<std::string>(
         "-p,--prompt",
         [&input](const std::string& text) {
           input.text = text;
           input.has_text = true;
         },
         "the text itself")
      ->type_name("TEXT")
      ->group(group);
  app.add_option("-f,--file", input.file, "a file that holds the text ('-' is standard input)")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<std::string>(
         "input",
         [&input](const std::string& value) {
           if (value != "-") {
             throw CLI::ValidationError(
                 fmt::format("'{}' is not an option: write -f {} to read a file, or -p \"...\" for a text",
                             value, value));
           }
           input.from_stdin = true;
         },
         "'-' reads standard input")
      ->type_name("-")
      ->group(group);
}

Result<std::string> ReadStdin() { return ReadStream(stdin, "standard input"); }

Result<std::string> ReadText(const TextInput& input) {
  const bool from_stdin = input.from_stdin || input.file == "-";
  const int given = input.has_text + (!input.file.empty() && input.file != "-") + from_stdin;
  if (given == 0) return InvalidInput("no text: give -p TEXT, -f FILE, or - for standard input");
  if (given > 1) return InvalidInput("more than one text: give only one of -p TEXT, -f FILE and -");
  if (input.has_text) return input.text;
  return from_stdin ? ReadStdin() : ReadFile(input.file);
}

Status CheckUtf8(const std::string& text, bool replace_invalid, std::string& note, std::string_view what) {
  const std::string invalid = DescribeInvalidUtf8(text);
  note.clear();
  if (invalid.empty()) return {};
  if (!replace_invalid) {
    return InvalidInput(
        fmt::format("{} is not UTF-8 ({}): convert it, for instance with 'iconv -f latin1 -t "
                    "utf-8', or add --replace-invalid to read U+FFFD for such bytes",
                    what, invalid));
  }
  note = fmt::format("note: {}; it and its like are read as U+FFFD", invalid);
  return {};
}

}  // namespace longheads
