// What all experiments do alike when they run.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/result.h"

namespace longheads {

// In the order given, each once.
template <typename T>
void DropRepeats(std::vector<T>& values) {
  std::vector<T> once;
  for (T& value : values) {
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(std::move(value));
  }
  values = std::move(once);
}

inline tl::unexpected<Error> Interrupted() { return MakeError(ErrorKind::kCancelled, "interrupted"); }

}  // namespace longheads
