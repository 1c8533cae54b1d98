#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace longheads {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "longheads: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace longheads
