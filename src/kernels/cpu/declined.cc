#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hwy/targets.h"
#include "kernels/cpu/simd_kernels.h"

namespace longheads::cpu {
namespace {

// Whether the system keeps tiles apart between threads, and lets this process use them. Linux wants to be
// asked, once for all threads (Documentation/arch/x86/xstate.rst).
bool MayUseTiles() {
  static const bool may = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if ((a >> 17 & 3) != 3) return false;  // the tiles' shapes and their data
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return may;
}

// `bit` is that of CPUID's leaf 7, in EDX.
std::string DeclinedAmx(unsigned bit, const char* name) {
  constexpr unsigned kTiles = 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> kTiles & 1) && (d >> bit & 1);
  if (!has) return std::string("this processor lacks ") + name;
  return MayUseTiles() ? "" : "the system does not let this process use AMX's tiles";
}

}  // namespace

std::string Declined(int64_t highway_target) {
  if (hwy::SupportedTargets() & highway_target) return "";
  return std::string("this processor lacks ") +
         (highway_target == HWY_AVX2 ? "AVX2, FMA or BMI2" : "AVX-512");
}

std::string DeclinedAvx512Bf16() {
  __builtin_cpu_init();
  const bool has = Declined(HWY_AVX3).empty() && __builtin_cpu_supports("avx512bf16");
  return has ? "" : "this processor lacks AVX-512-BF16";
}

std::string DeclinedVnni() {
  __builtin_cpu_init();
  const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
                   Declined(HWY_AVX2).empty();
  return has ? "" : "this processor lacks AVX-512 with VNNI";
}

std::string DeclinedAmxBf16() {
  const std::string no_tiles = DeclinedAmx(22, "AMX-BF16");
  return no_tiles.empty() ? DeclinedAvx512Bf16() : no_tiles;
}
std::string DeclinedAmxInt8() { return DeclinedAmx(25, "AMX-INT8"); }

}  // namespace longheads::cpu
