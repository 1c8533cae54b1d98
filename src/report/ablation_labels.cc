#include "report/ablation_labels.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "eval/ablation.h"

namespace longheads {
namespace {

constexpr std::size_t kFewest = 3;

// Takes "NAME=123" and the comma behind it off the text.
bool TakeCount(std::string_view name, std::string_view& text, int64_t& value) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty() && text.front() != ',') return false;
  if (!text.empty()) text.remove_prefix(1);
  return true;
}

// A spec as AblationVariants writes the base's.
std::optional<AblationBase> BaseOf(std::string_view method) {
  AblationBase base;
  if (!method.starts_with("longheads,")) return std::nullopt;
  method.remove_prefix(std::string_view("longheads,").size());
  if (!TakeCount("chunk=", method, base.chunk) || !TakeCount("window=", method, base.window)) {
    return std::nullopt;
  }
  // Numbers that no variant overflows.
  constexpr int64_t kMost = int64_t{1} << 40;
  if (base.chunk < 1 || base.chunk > kMost || base.window < 1 || base.window > kMost) return std::nullopt;
  base.rest = method;
  return base;
}

}  // namespace

std::map<std::string, std::string> AblationLabels(std::span<const std::string> methods) {
  std::map<std::string, std::string> best;
  for (const std::string& method : methods) {
    const std::optional<AblationBase> base = BaseOf(method);
    if (!base) continue;
    const Result<std::vector<AblationVariant>> variants = AblationVariants(*base);
    if (!variants) continue;
    std::map<std::string, std::string> labels;
    for (const AblationVariant& variant : *variants) {
      if (std::ranges::find(methods, variant.attention) != methods.end()) {
        labels.emplace(variant.attention, variant.label);
      }
    }
    if (labels.size() >= kFewest && labels.size() > best.size()) best = std::move(labels);
  }
  return best;
}

}  // namespace longheads
