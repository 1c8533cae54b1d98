// A file that takes its name only once it is whole: it is written beside the target and renamed. What stood
// there before stays as it was until then, and nothing is left behind by a caller that gives up. What goes
// into it is the caller's.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longheads {

class OutputFile {
 public:
  // Where `path` is a link, the file it leads to is the target. What is no regular file (a device, a pipe) is
  // written as it stands: it cannot be replaced.
  static Result<OutputFile> Create(const std::string& path);

  // Appends. kIo where the system refuses (a full disk).
  Status Write(std::span<const std::byte> bytes);

  // To be called once everything is there: reports what the system had accepted and could not write, and
  // gives the file its name. Without this call, or where it fails, the target stays as it was.
  Status Commit();

 private:
  // Forgets what was written: closes, and removes the file that has no name of its own yet.
  struct Abandon {
    std::string temporary;  // empty where the target itself is written
    void operator()(std::FILE* file) const;
  };

  OutputFile(std::string path, std::string target, std::FILE* file, std::string temporary);

  std::string path_;    // as the caller wrote it, for messages
  std::string target_;  // links followed
  std::unique_ptr<std::FILE, Abandon> file_;
};

// All of a file at once.
Status WriteFile(const std::string& path, std::string_view text);

}  // namespace longheads
