// Finds a benchmark's official files where the user says they are. Nothing is fetched: a file that is not
// there gets a sentence with its official name and the project that publishes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/line_file.h"

namespace longheads {

class BenchmarkFiles {
 public:
  // A folder or a zip archive. Files are looked for in the folder, in its data/, and in its data.zip; in an
  // archive in any folder. `origin` ends the sentence about a file that is missing: "LongBench publishes it
  // in its data.zip".
  static Result<BenchmarkFiles> Open(const std::string& path, std::string origin);

  Result<LineFile> Lines(const std::string& name) const;

  // A small text file: the one called `given`, or where that is empty `name` in the folder (of the archive),
  // in its config/ or in its src/. `option` is what to name it with.
  struct Text {
    std::string path;
    std::string text;
  };
  Result<Text> FindText(const std::string& given, const std::string& name, const std::string& option) const;

 private:
  BenchmarkFiles() = default;

  std::string path_;
  std::string folder_;  // path_, or where the archive lies
  std::string origin_;
  std::string archive_;  // path_, or the folder's data.zip; empty: none
  std::vector<std::string> zipped_;
};

}  // namespace longheads
