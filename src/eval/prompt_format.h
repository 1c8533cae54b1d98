// The prompts that benchmarks publish: one format for each data set, with fields in braces. They are read
// from the official files as those are (LongBench's and InfLLM's dataset2prompt.json, InfiniteBench's
// prompt.py), and filled as Python's str.format does.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longheads {

using PromptFields = std::map<std::string, std::string, std::less<>>;

struct FilledPrompt {
  std::string text;
  // So many bytes of it come before the end of the field that was marked; all where it does not occur.
  std::size_t marked_end = 0;
};

// "{context}" becomes the field of that name, "{{" and "}}" a brace. The last occurrence of the field
// `marked` gives marked_end. Refused, with its name: a field that is not there; and a brace alone.
Result<FilledPrompt> FillPrompt(std::string_view format, const PromptFields& fields, std::string_view marked);

// The string values of a JSON object, or of a dictionary literal `dictionary = {...}` at the top of a Python
// file. Of Python's strings those are understood that the official file has: "..." and '...' with escapes,
// joined by + or by standing side by side. `file` is for messages.
Result<std::map<std::string, std::string>> ParsePromptJson(std::string_view text, const std::string& file);
Result<std::map<std::string, std::string>> ParsePromptPython(std::string_view text,
                                                             const std::string& dictionary,
                                                             const std::string& file);

// The whole numbers, at least 1, of a JSON object: dataset2maxlen.json.
Result<std::map<std::string, int64_t>> ParseLimitsJson(std::string_view text, const std::string& file);

}  // namespace longheads
