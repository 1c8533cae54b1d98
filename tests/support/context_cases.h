// Context files that reach every branch of the reader: what opens, and what is refused with which words. The
// unit tests check the words; the fuzzer starts from the bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace longheads {

struct ContextCase {
  std::string name;  // fit for a file name
  std::vector<std::byte> bytes;
  std::string refusal;  // a part of the message; empty where the file opens
};

// Files of SampleContext, made in `folder`, which is left as it was.
std::vector<ContextCase> ContextCases(const std::string& folder);

// Makes every checksum that can be found match again, from the superblocks down: so that what lies behind
// them is reached by bytes that were changed.
void RepairContextChecksums(std::vector<std::byte>& bytes);

// A file without its long runs of zeros, which would be most of it: for fuzzing. Expand takes any bytes, and
// makes at most about 1 MiB of them.
std::vector<std::byte> SqueezeZeros(std::span<const std::byte> bytes);
std::vector<std::byte> ExpandZeros(std::span<const std::byte> squeezed);

}  // namespace longheads
