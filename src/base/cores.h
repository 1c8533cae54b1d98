// The processors of this machine: how many threads are worth starting on them, and what they are called.
#pragma once

#include <sched.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace longheads {

// Physical cores that this process may use (affinity mask and cgroup quota respected); at least 1.
int PhysicalCores();

// Fills a mask of so many bytes and gives 0, or gives -1 and sets errno: EINVAL where the mask is too small
// for the processors that the kernel numbers.
using GetAffinity = std::function<int(std::size_t bytes, cpu_set_t* mask)>;

// The numbers of the processors in this process's affinity mask, ascending, however many the kernel numbers;
// empty where it does not tell.
std::vector<int> AllowedCpus(const GetAffinity& get);

// The processor as the system names it.
std::string ProcessorName();

}  // namespace longheads
