// Writes the files that the results fuzzer starts from into a directory: lines of every kind, and journals.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/result_journals.h"

int main(int argc, char** argv) {
  using namespace longheads;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  const std::string passkey = PasskeyJson(MakePasskey("longheads,chunk=128", 4096, 0.5, true));
  const std::string other = PasskeyJson(MakePasskey("full", 8192, 0.25, false, 1));
  const std::string ppl = PplJson(MakePpl("full", 4096, 100, 2.5));
  TaskRecord failed = MakeTask("full", "b", {{"length", 4096}, {"depth", 12.5}}, 0, "d");
  failed.failed = "out of memory";
  const std::string task = TaskJson(MakeTask("infllm", "a", {{"length", 4096}, {"depth", 12.5}}, 0.5, "d"));
  const std::string without = TaskJson(failed);
  const std::pair<const char*, std::string> seeds[] = {
      {"passkey", "K" + passkey},
      {"ppl", "P" + ppl},
      {"task", "T" + task},
      {"task-failed", "T" + without},
      {"task-to-sign", "S" + task},
      {"passkeys", "FK" + passkey + "\n" + other + "\n"},
      {"passkeys-cut", "FK" + passkey + "\n" + other.substr(0, 40)},
      {"ppls", "FP" + ppl + "\n" + ppl + "\n"},
      {"tasks", "FT" + task + "\n" + without + "\n"},
      {"nothing", "FT\n"},
      {"nested", "T" + std::string(2000, '[')}};
  for (const auto& [name, bytes] : seeds) {
    std::ofstream file(directory / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (directory / name).c_str());
      return 1;
    }
  }
  return 0;
}
