#include "attention/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "attention/registry.h"

namespace longheads {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

int64_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int64_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

Status ParseOptions(std::string_view spec, std::vector<std::string_view> parts,
                    std::vector<SpecOption>& options) {
  for (std::string_view part : parts) {
    part = Trim(part);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      return InvalidInput(fmt::format("'{}' in the attention method '{}' is not option=value", part, spec));
    }
    const std::string name(Trim(part.substr(0, equals)));
    for (const SpecOption& option : options) {
      if (option.name == name) {
        return InvalidInput(fmt::format("the attention method '{}' sets '{}' twice", spec, name));
      }
    }
    options.push_back({name, std::string(Trim(part.substr(equals + 1)))});
  }
  return {};
}

tl::unexpected<Error> Unknown(std::string_view kind, std::string_view name,
                              const std::vector<std::string>& known) {
  return InvalidInput(fmt::format("unknown {} '{}'{} ('longheads methods' lists them all: {})", kind, name,
                                  DidYouMean(name, known), fmt::join(known, ", ")));
}

}  // namespace

std::string DidYouMean(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const std::string& candidate : known) {
    const int64_t distance = EditDistance(name, candidate);
    // With half of its letters wrong it is another name, not a slip.
    if (distance >= least || 2 * distance > static_cast<int64_t>(candidate.size())) continue;
    least = distance;
    best = candidate;
  }
  return best.empty() ? "." : fmt::format(": did you mean '{}'?", best);
}

Result<AttentionSpec> ParseSpec(std::string_view text) {
  text = Trim(text);
  AttentionSpec spec{.frequencies = "none", .frequency_options = {}, .policy = "full", .policy_options = {}};
  const std::vector<std::string> policies = PolicyNames();
  const std::vector<std::string> frequencies = FrequencyNames();
  const auto known = [](const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };

  std::string_view policy = text;
  // Before the first comma only: options of the policy may hold a '+' of their own (compat=own-key+begin),
  // and a ':' too.
  const std::string_view head = text.substr(0, text.find(','));
  const std::size_t plus = head.find('+');
  if (plus != std::string_view::npos || head.find(':') != std::string_view::npos ||
      known(frequencies, text)) {
    std::vector<std::string_view> parts = Split(text.substr(0, plus), ':');
    spec.frequencies = std::string(Trim(parts[0]));
    if (known(policies, spec.frequencies) && plus == std::string_view::npos) {
      return InvalidInput(fmt::format(
          "options of '{0}' follow a comma, as in '{0},option=value', not a colon", spec.frequencies));
    }
    if (!known(frequencies, spec.frequencies))
      return Unknown("frequency schedule", spec.frequencies, frequencies);
    parts.erase(parts.begin());
    LH_TRY(ParseOptions(text, parts, spec.frequency_options));
    if (plus == std::string_view::npos) return spec;
    policy = text.substr(plus + 1);
  }
  std::vector<std::string_view> parts = Split(policy, ',');
  spec.policy = std::string(Trim(parts[0]));
  if (known(frequencies, spec.policy)) {
    return InvalidInput(
        fmt::format("'{0}' is a frequency schedule: its options follow a colon and it stands before "
                    "the attention method, as in '{0}:option=value+full'",
                    spec.policy));
  }
  if (!known(policies, spec.policy)) {
    std::vector<std::string> names = policies;
    if (parts.size() == 1 && policy.data() == text.data()) {  // a bare word: it may be meant for either
      names.insert(names.end(), frequencies.begin(), frequencies.end());
    }
    return Unknown("attention method", spec.policy, names);
  }
  parts.erase(parts.begin());
  LH_TRY(ParseOptions(text, parts, spec.policy_options));
  return spec;
}

std::vector<std::string> SplitSpecs(std::string_view list) {
  std::vector<std::string> specs;
  for (const std::string_view group : Split(list, ';')) {
    bool first = true;
    for (std::string_view part : Split(group, ',')) {
      part = Trim(part);
      // "name=value" goes on; "yarn:factor=4+full" starts anew, since its '=' belongs to the frequencies.
      const std::size_t equals = part.find('=');
      const bool option =
          equals != std::string_view::npos && part.substr(0, equals).find(':') == std::string_view::npos;
      if (first || !option) {
        specs.emplace_back(part);
      } else {
        specs.back().append(",").append(part);
      }
      first = false;
    }
  }
  std::erase(specs, "");
  return specs;
}

}  // namespace longheads
