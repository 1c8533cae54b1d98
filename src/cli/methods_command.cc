#include <fmt/format.h>

#include <memory>

#include "attention/registry.h"
#include "cli/command.h"

namespace longheads {
namespace {

void Print(const MethodInfo& method) {
  fmt::print("{}\n  {}\n  Source: {}.\n", method.name, method.summary, method.source);
  if (method.options.empty()) fmt::print("  It takes no options.\n");
  for (const OptionInfo& option : method.options) {
    fmt::print("\n  {}={}\n      {}.\n      default: {}{}{}\n", option.name, option.type, option.meaning,
               option.default_value, option.range.empty() ? "" : "; range: ", option.range);
  }
}

Result<int> ShowMethods(const std::string& name) {
  if (name.empty()) {
    fmt::print("What --attn takes: NAME, or NAME,option=value,option=value\n\n");
    for (const MethodInfo& method : Methods()) fmt::print("  {:<15}{}\n", method.name, method.summary);
    fmt::print("\n'longheads methods NAME' shows a method's options.\n");
    return 0;
  }
  const MethodInfo* const method = FindMethod(name);
  if (method == nullptr) {
    return InvalidInput(fmt::format("unknown attention method '{}': did you mean '{}'?", name,
                                    NearestName(name, PolicyNames())));
  }
  Print(*method);
  return 0;
}

}  // namespace

void AddMethodsCommand(CLI::App& program, Command& command) {
  CLI::App* const app = program.add_subcommand("methods", "Lists the attention methods and their options");
  const auto name = std::make_shared<std::string>();
  app->add_option("NAME", *name, "one method, with its options");
  app->footer("Example:\n  longheads methods longheads");
  app->callback([name, &command] { command = [name] { return ShowMethods(*name); }; });
}

}  // namespace longheads
