#include "cli/misspelt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "attention/spec.h"

namespace longheads {
namespace {

bool LooksLikeAnOption(std::string_view word) {
  // As CLI11 has it: what begins otherwise is a word like any other.
  const std::string_view name =
      word.substr(word.starts_with("--") ? 2 : std::min<std::size_t>(word.size(), 1));
  return word.starts_with('-') && !name.empty() &&
         std::string_view("-! \n").find(name[0]) == std::string_view::npos &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0;
}

// As it is spelt on a command line: "longheads eval ppl".
std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? "longheads" : FullName(*app.get_parent()) + " " + app.get_name();
}

const CLI::App* SubcommandOf(const CLI::App& app, std::string_view name) {
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  const auto found = std::ranges::find_if(all, [&](const CLI::App* sub) { return sub->get_name() == name; });
  return found == all.end() ? nullptr : *found;
}

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

std::string NoCommand(const CLI::App& app, std::string_view name) {
  std::string sentence =
      fmt::format("there is no command '{} {}'{}", FullName(app), name, DidYouMean(name, SubcommandsOf(app)));
  if (sentence.back() == '.') sentence.pop_back();
  if (sentence.back() == '?') return sentence;
  return sentence + fmt::format("; '{} --help' lists what there is", FullName(app));
}

std::string NoOption(const CLI::App& app, std::string_view name) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::string sentence = fmt::format("'{}' has no option {}", FullName(app), name);
  // Without the dashes, which all have in common.
  std::string meant = DidYouMean(name.substr(std::min(name.find_first_not_of('-'), name.size())), known);
  if (meant == ".") return sentence + fmt::format("; '{} --help' lists those it has", FullName(app));
  return sentence + meant.insert(meant.find('\'') + 1, "--");
}

// Why an option that takes a number does not take this.
std::string_view WhyNoNumber(const std::string& value) {
  const std::string_view digits = std::string_view(value).substr(value.starts_with('-') ? 1 : 0);
  if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos)
    return "which is too large";
  char* end = nullptr;
  (void)std::strtod(value.c_str(), &end);
  return !value.empty() && *end == '\0' ? "but must be a whole number" : "but must be a number";
}

}  // namespace

std::string UnknownCommand(const CLI::App& program, std::span<const char* const> arguments) {
  const CLI::App* app = &program;
  for (const std::string_view word : arguments) {
    if (app->get_require_subcommand_min() == 0 || word.empty() || word[0] == '-') return {};
    const CLI::App* const sub = SubcommandOf(*app, word);
    if (sub == nullptr) return NoCommand(*app, word);
    app = sub;
  }
  if (app->get_require_subcommand_min() == 0) return {};
  return fmt::format("which command of '{}'? {}; with --help each says more", FullName(*app),
                     fmt::join(SubcommandsOf(*app), ", "));
}

std::string UnknownOption(const CLI::App& program, std::span<const char* const> arguments) {
  const CLI::App* app = &program;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--") return {};
    if (!LooksLikeAnOption(word)) {
      const CLI::App* const sub = SubcommandOf(*app, word);
      if (sub != nullptr) app = sub;
      continue;
    }
    const bool is_long = word[1] == '-';
    const std::string name(is_long ? word.substr(0, word.find('=')) : word.substr(0, 2));
    const CLI::Option* const option = app->get_option_no_throw(name);
    if (option == nullptr) return NoOption(*app, is_long ? name : word);
    const bool has_value = word.size() > name.size() + (is_long ? 1 : 0);  // behind "=", of a long one
    if (!has_value && option->get_items_expected_min() > 0) ++i;
  }
  return {};
}

std::string WhatIsWrong(const CLI::ParseError& error, const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  const auto kind = static_cast<CLI::ExitCodes>(error.get_exit_code());
  std::string sentence = error.what();
  constexpr std::string_view kUnconverted = "Could not convert: ", kEquals = " = ", kIs = ": is ";
  const std::size_t equals = sentence.find(kEquals);
  const std::size_t colon = sentence.find(": ");
  if (kind == CLI::ExitCodes::ConversionError && sentence.starts_with(kUnconverted) &&
      equals != std::string::npos) {
    const std::string name = sentence.substr(kUnconverted.size(), equals - kUnconverted.size());
    const std::string value = sentence.substr(equals + kEquals.size());
    const CLI::Option* const option = app->get_option_no_throw(name);
    if (option != nullptr && option->get_items_expected_max() == 0) {
      sentence = fmt::format("{} takes no value", name);
    } else {
      sentence = fmt::format("{} is '{}', {}", name, value, WhyNoNumber(value));
    }
  } else if (kind == CLI::ExitCodes::ArgumentMismatch && colon != std::string::npos) {
    // "--temp: 1 required T missing", "--threads: At Most 1 required but received 2"
    sentence = sentence.substr(0, colon) +
               (sentence.ends_with(" missing") ? " needs a value" : " has more values than it takes");
  } else if (kind == CLI::ExitCodes::ExtrasError) {
    sentence = fmt::format("there is no place for '{}'", fmt::join(app->remaining(), " "));
  } else if (const std::size_t is = sentence.find(kIs); is != std::string::npos && is == colon) {
    sentence.erase(is, 1);
  }
  return fmt::format("{}; '{} --help' says more", sentence, FullName(*app));
}

}  // namespace longheads
