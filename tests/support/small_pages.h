// What the system was asked of this process's memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace longheads {

// Bytes that are to lie in small pages.
inline int64_t InSmallPages() {
  std::ifstream maps("/proc/self/smaps");
  int64_t sum = 0, size = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("Size:")) size = std::stoll(line.substr(5)) * 1024;
    if (line.starts_with("VmFlags:") && line.find(" nh") != std::string::npos) sum += size;
  }
  return sum;
}

}  // namespace longheads
