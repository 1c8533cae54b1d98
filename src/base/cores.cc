#include "base/cores.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace longheads {
namespace {

// CPUs of the cgroup's quota ("max 100000" or "200000 100000"), or a negative number where there is none.
double CgroupQuota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return -1;
  return std::strtod(quota.c_str(), nullptr) / period;
}

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

std::vector<int> AllowedCpus(const GetAffinity& get) {
  // A cpu_set_t numbers 1024, and kernels are built for as many as 8192. Nothing tells how many it is but
  // trying; above a million it is not the size that is wrong.
  constexpr int kMost = 1 << 20;
  for (int n = CPU_SETSIZE; n <= kMost; n *= 2) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(static_cast<std::size_t>(n)));
    if (!set) return {};
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(n));
    CPU_ZERO_S(bytes, set.get());
    if (get(bytes, set.get()) == 0) {
      std::vector<int> cpus;
      for (int cpu = 0; cpu < n; ++cpu) {
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
      }
      return cpus;
    }
    if (errno != EINVAL) return {};
  }
  return {};
}

int PhysicalCores() {
  std::set<std::pair<int, int>> cores;
  for (const int cpu :
       AllowedCpus([](std::size_t bytes, cpu_set_t*mask) { return sched_getaffinity(0, bytes, mask); })) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    int package = 0;
    int core = cpu;
    std::ifstream(topology + "physical_package_id") >> package;
    std::ifstream(topology + "core_id") >> core;
    cores.emplace(package, core);
  }
  int n = std::max<int>(1, static_cast<int>(cores.size()));
  const double quota = CgroupQuota();
  if (quota > 0) n = std::max(1, std::min(n, static_cast<int>(std::ceil(quota))));
  return n;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t at = line.find(": ");
    if (at != std::string::npos) return line.substr(at + 2);
  }
  return "an unknown processor";
}

}  // namespace longheads
