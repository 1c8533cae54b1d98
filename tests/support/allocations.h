// Counts what the program asks of operator new, and makes chosen requests fail. A program that links this has
// its operators new and delete replaced.
#pragma once

#include <cstdint>

namespace longheads {

// Requests of all threads since the program began.
int64_t AllocationCount();

// From now on the k-th request (1 is the next) throws std::bad_alloc, once; 0: none does.
void FailAllocation(int64_t k);
// Whether that request came.
bool AllocationFailed();

}  // namespace longheads
