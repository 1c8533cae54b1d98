#include "base/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#if __has_include(<malloc.h>)
#include <malloc.h>  // of glibc
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace longheads {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::atomic<uint64_t> pretended{kUnlimited};

// The files of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* file_cache[2];  // in memory.stat
};
constexpr GroupFiles kV1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr GroupFiles kV2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

// What one group leaves.
uint64_t LeftIn(const fs::path& group, const GroupFiles& files) {
  uint64_t limit = 0;
  uint64_t used = 0;
  if (!(std::ifstream(group / files.limit) >> limit)) return kUnlimited;  // "max", or no such group
  if (!(std::ifstream(group / files.used) >> used)) return kUnlimited;
  uint64_t cache = 0;
  std::ifstream stat(group / "memory.stat");
  std::string key;
  for (uint64_t value = 0; stat >> key >> value;) {
    if (key == files.file_cache[0] || key == files.file_cache[1]) cache += value;
  }
  used -= std::min(used, cache);
  return limit > used ? limit - used : 0;
}

// The least that a group and those above it leave. Inside a container the path may be one of the host's: then
// only the root is there, which is the container's own group.
uint64_t LeftUpFrom(const fs::path& mount, const std::string& path, const GroupFiles& files) {
  uint64_t least = LeftIn(mount, files);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    least = std::min(least, LeftIn(group, files));
  }
  return least;
}

}  // namespace

PretendedMemory::PretendedMemory(uint64_t bytes) { pretended.store(bytes, std::memory_order_relaxed); }
PretendedMemory::~PretendedMemory() { pretended.store(kUnlimited, std::memory_order_relaxed); }

uint64_t AvailableMemory(const std::string& root) {
  uint64_t available = pretended.load(std::memory_order_relaxed);
  if (available != kUnlimited) return available;
  std::ifstream meminfo(fs::path(root) / "proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  // "0::/path" is version 2; "4:memory:/path" and the like, version 1.
  const fs::path mount = fs::path(root) / "sys/fs/cgroup";
  std::ifstream groups(fs::path(root) / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") available = std::min(available, LeftUpFrom(mount, path, kV2));
    if (controllers.find(",memory,") != std::string::npos)
      available = std::min(available, LeftUpFrom(mount / "memory", path, kV1));
  }
  return available;
}

void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << 5; }

AlignedMemory AllocateAligned(std::size_t size, std::size_t alignment) {
  const bool huge = size >= kHugePage;
  const FreeAligned free{std::align_val_t(huge ? kHugePage : alignment)};
  AlignedMemory memory(static_cast<std::byte*>(::operator new(size, free.alignment)), free);
  if (huge) {
    // What was given back before comes again in the small pages it had: these go, for huge ones to come. (A
    // wish: nothing depends on it.)
    DropContents({memory.get(), size / kHugePage * kHugePage});
    madvise(memory.get(), size, MADV_HUGEPAGE);
  }
  return memory;
}

// Under the address sanitizer nothing is added, for what reads beyond the end to be found.
#if defined(__SANITIZE_ADDRESS__)
#define LH_EXACT_LINES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LH_EXACT_LINES 1
#endif
#endif

#ifdef LH_EXACT_LINES
void* AllocateLines(std::size_t size) { return ::operator new(size, std::align_val_t(kCacheLine)); }
void FreeLines(void* lines) noexcept { ::operator delete(lines, std::align_val_t(kCacheLine)); }
#else
// What was allocated lies before the lines: there is room, as it is aligned to more than a pointer.
void* AllocateLines(std::size_t size) {
  static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= sizeof(void*));
  if (size > std::numeric_limits<std::size_t>::max() - kCacheLine) throw std::bad_alloc();
  auto* const all = static_cast<std::byte*>(::operator new(size + kCacheLine));
  std::byte* const lines = all + kCacheLine - reinterpret_cast<std::uintptr_t>(all) % kCacheLine;
  std::memcpy(lines - sizeof(all), &all, sizeof(all));
  return lines;
}
void FreeLines(void* lines) noexcept {
  if (lines == nullptr) return;
  void* all = nullptr;
  std::memcpy(&all, static_cast<std::byte*>(lines) - sizeof(all), sizeof(all));
  ::operator delete(all);
}
#endif

void DropContents(std::span<std::byte> memory) { madvise(memory.data(), memory.size(), MADV_DONTNEED); }
void KeepSmallPages(std::span<std::byte> memory) { madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE); }
void AllowHugePages(std::span<std::byte> memory) { madvise(memory.data(), memory.size(), MADV_HUGEPAGE); }

uint64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace longheads
