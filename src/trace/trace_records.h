// How records lie in a trace file, for its writer and its reader.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string_view>

namespace longheads {

// Not text, and damaged by whatever takes it for text.
inline constexpr std::string_view kTraceMagic("\x89LHT\r\n\x1a\n", 8);

enum TraceRecord : char {
  kTraceHeader = 'H',
  kTraceTokens = 'T',
  kTraceSelection = 'S',
  kTraceCounts = 'P',
  kTraceEnd = 'E',
};

// Kind and length before a payload; after it their and its checksum.
inline constexpr std::size_t kTraceRecordHead = 1 + 4;
inline constexpr std::size_t kTraceRecordTail = 4;

inline uint32_t TraceChecksum(std::string_view head, std::string_view payload) {
  const auto add = [](uLong sum, std::string_view bytes) {
    return crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  };
  return static_cast<uint32_t>(add(add(crc32_z(0, nullptr, 0), head), payload));
}

}  // namespace longheads
