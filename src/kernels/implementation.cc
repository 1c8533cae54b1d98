#include "kernels/implementation.h"

#include <cstdlib>

namespace longheads {

std::string_view AutoBackend() {
  static const std::string backend = [] {
    const char* const said = std::getenv("LONGHEADS_BACKEND");
    return std::string(said != nullptr && *said != '\0' ? said : "auto");
  }();
  return backend;
}

std::string BackendAsSaid(std::string_view backend) {
  return (backend == AutoBackend() ? "LONGHEADS_BACKEND=" : "--backend ") + std::string(backend);
}

}  // namespace longheads
