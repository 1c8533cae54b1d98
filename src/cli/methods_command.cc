#include <fmt/format.h>

#include <memory>

#include "attention/frequency_registry.h"
#include "attention/registry.h"
#include "cli/command.h"
#include "cli/output.h"

namespace longheads {
namespace {

struct MethodsOptions {
  std::string name;
  bool markdown = false;
};

// `separator`: what stands between the name and its options.
void PrintMethod(const MethodInfo& method, char separator) {
  Print("{}\n  {}\n  Source: {}.\n", method.name, method.summary, method.source);
  if (method.options.empty()) Print("  It takes no options.\n");
  for (const OptionInfo& option : method.options) {
    Print("\n  {}={}\n      {}.\n      default: {}{}{}\n", option.name, option.type, option.meaning,
          option.default_value, option.range.empty() ? "" : "; range: ", option.range);
  }
  if (!method.options.empty()) {
    Print("\n  As in: --attn {}{}{}=VALUE\n", method.name, separator, method.options[0].name);
  }
  Print("  More: docs/methods/{}\n", PageOf(method));
}

Result<int> ShowMethods(const MethodsOptions& options) {
  if (options.name.empty()) {
    if (options.markdown)
      return InvalidInput("--markdown is of one method's options: write longheads methods NAME --markdown");
    Print(
        "What --attn takes: [FREQUENCIES+]METHOD, each with its options:\n"
        "  METHOD,option=value,option=value\n"
        "  FREQUENCIES:option=value:option=value+METHOD,option=value\n"
        "FREQUENCIES alone are those with full attention.\n\nMethods: which keys each query sees\n");
    for (const MethodInfo& method : Methods()) Print("  {:<15}{}\n", method.name, method.summary);
    Print("\nFrequencies: how fast positions turn queries and keys\n");
    for (const MethodInfo& method : FrequencyMethods()) Print("  {:<15}{}\n", method.name, method.summary);
    Print("\n'longheads methods NAME' shows the options of one.\n");
    return 0;
  }
  const MethodInfo* method = FindMethod(options.name);
  const bool is_policy = method != nullptr;
  if (!is_policy) method = FindFrequencyMethod(options.name);
  if (method == nullptr) {
    std::vector<std::string> names = PolicyNames();
    const std::vector<std::string> frequencies = FrequencyNames();
    names.insert(names.end(), frequencies.begin(), frequencies.end());
    return InvalidInput(fmt::format("unknown attention method '{}'{} ('longheads methods' lists them all)",
                                    options.name, DidYouMean(options.name, names)));
  }
  if (options.markdown) {
    Print("{}", OptionTable(*method));
  } else {
    PrintMethod(*method, is_policy ? ',' : ':');
  }
  return 0;
}

}  // namespace

void AddMethodsCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand(
      "methods", "Lists the attention methods and frequency schedules, with their options");
  const auto options = std::make_shared<MethodsOptions>();
  app->add_option("NAME", options->name, "one method or schedule, with its options");
  app->add_flag("--markdown", options->markdown,
                "the options of NAME as the table that its page in docs holds");
  app->footer("Examples:\n  longheads methods\n  longheads methods yarn");
  app->callback([options, &command] { command = [options] { return ShowMethods(*options); }; });
}

}  // namespace longheads
