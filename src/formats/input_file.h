// Whole text files, read as they are. What a model file or an experiment's file means is others'.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longheads {

// All that comes from a stream, at most 1 GiB; `name` is for messages.
Result<std::string> ReadStream(std::FILE* file, const std::string& name);

// The whole of a regular file or of a pipe, at most 1 GiB.
Result<std::string> ReadFile(const std::string& path);

// Where the text stops being UTF-8, as a sentence; empty where it is UTF-8.
std::string DescribeInvalidUtf8(std::string_view text);

// ReadFile, and what is no UTF-8 is refused.
Result<std::string> ReadUtf8File(const std::string& path);

}  // namespace longheads
