#include "cli/text_input.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/bytes.h"

namespace longheads {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

Result<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const std::size_t n = std::fread(buffer, 1, sizeof(buffer), file);
    text.append(buffer, n);
    if (text.size() > kMostBytes) {
      return InvalidInput(fmt::format("{} is larger than {}: that is more than any model reads", name,
                                      FormatBytes(kMostBytes)));
    }
    if (n == sizeof(buffer)) continue;
    if (std::ferror(file))
      return MakeError(ErrorKind::kIo, fmt::format("{}: {}", name, std::strerror(errno)));
    return text;
  }
}

}  // namespace

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

Result<std::string> ReadFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return InvalidInput(fmt::format("{}: {}", path, std::strerror(errno)));
  if (S_ISDIR(info.st_mode)) return InvalidInput(fmt::format("{} is a directory, not a file", path));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return InvalidInput(fmt::format("{}: {}", path, std::strerror(errno)));
  return ReadAll(file.get(), path);
}

Result<std::string> ReadStdin() { return ReadAll(stdin, "standard input"); }

Result<std::string> ReadText(const TextInput& input) {
  const bool from_stdin = input.from_stdin || input.file == "-";
  const int given = input.has_text + (!input.file.empty() && input.file != "-") + from_stdin;
  if (given == 0) return InvalidInput("no text: give -p TEXT, -f FILE, or - for standard input");
  if (given > 1) return InvalidInput("more than one text: give only one of -p TEXT, -f FILE and -");
  if (input.has_text) return input.text;
  return from_stdin ? ReadStdin() : ReadFile(input.file);
}

std::string DescribeInvalidUtf8(std::string_view text) {
  const auto* const begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t n =
        utf8proc_iterate(begin + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (n < 1) {
      return fmt::format("byte 0x{:02X} at offset {} is not UTF-8", static_cast<unsigned char>(text[at]), at);
    }
    at += static_cast<std::size_t>(n);
  }
  return "";
}

}  // namespace longheads
