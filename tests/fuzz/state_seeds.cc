// Writes the saves that the fuzzer of states starts from into a directory: of each kind of state its three
// saves, one save for all, and some with something wrong.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fuzz/state_cases.h"

namespace {

using Bytes = std::vector<std::byte>;

bool Write(const std::filesystem::path& path, std::size_t which, const std::vector<Bytes>& parts) {
  std::ofstream out(path, std::ios::binary);
  out.put(static_cast<char>(which));
  for (const Bytes& part : parts) {
    out.put(static_cast<char>(part.size() & 0xFF)).put(static_cast<char>(part.size() >> 8));
    out.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  }
  if (out.flush()) return true;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace longheads;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  for (std::size_t which = 0; which < StateCases().size(); ++which) {
    const StateCase& one = StateCases()[which];
    const std::vector<SavedState>& saves = one.saves;
    const SavedState whole = one.layer.Save(0);
    Bytes cut = whole.latest, longer = whole.added;
    cut.pop_back();
    longer.push_back({});
    const std::vector<std::vector<Bytes>> all = {
        {saves[2].latest, saves[0].added, saves[1].added, saves[2].added},
        {whole.latest, whole.added},
        {saves[1].latest, saves[0].added, saves[1].added},
        {cut, whole.added},
        {whole.latest, longer},
    };
    for (std::size_t at = 0; at < all.size(); ++at) {
      // A part's length has two bytes.
      for (const Bytes& part : all[at]) LH_CHECK(part.size() < 1 << 16);
      if (!Write(directory / (std::to_string(which) + "-" + std::to_string(at)), which, all[at])) return 1;
    }
  }
  return 0;
}
