// One operation, an ordered list of implementations (fastest first, ref last); each says why it declined.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longheads {

// Table is a struct of function pointers: one operation's entry points.
template <typename Table>
struct Implementation {
  std::string_view name;  // "amx", "avx512bf16", "avx512", "avx2", "ref"
  std::string declined;   // empty where this machine can run it, else the reason
  const Table* table;
};

// What "auto" stands for: the environment's LONGHEADS_BACKEND, or "auto" where that says nothing.
std::string_view AutoBackend();
// "--backend NAME", or where the name came from the environment, "LONGHEADS_BACKEND=NAME".
std::string BackendAsSaid(std::string_view backend);

// The first implementation that runs here; with a name, that one or the reason why not.
// `operation` stands in messages. Names that an operation does not have fall to the next slower one it has:
// the order of all names is that of kBackends.
inline constexpr std::string_view kBackends[] = {"amx", "avx512bf16", "avx512", "avx2", "ref"};

template <typename Table>
Result<Implementation<Table>> ChooseImplementation(std::span<const Implementation<Table>> candidates,
                                                   std::string_view forced, std::string_view operation) {
  if (forced.empty() || forced == "auto") forced = AutoBackend();
  bool reached = forced == "auto";
  std::string reasons;
  for (std::string_view backend : kBackends) {
    if (backend == forced) reached = true;
    if (!reached) continue;
    for (const Implementation<Table>& candidate : candidates) {
      if (candidate.name != backend) continue;
      if (candidate.declined.empty()) return candidate;
      if (backend == forced) {
        return Unsupported(BackendAsSaid(forced) + ": " + candidate.declined);
      }
      reasons += (reasons.empty() ? "" : "; ") + std::string(candidate.name) + ": " + candidate.declined;
    }
  }
  if (!reached) {
    return InvalidInput(BackendAsSaid(forced) +
                        ": there are auto, amx, avx512bf16, avx512, avx2 and ref to choose from");
  }
  return Unsupported("no implementation of " + std::string(operation) + " runs on this machine (" + reasons +
                     ")");
}

}  // namespace longheads
