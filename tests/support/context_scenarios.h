// The ways in which a context file changes, each from an old text to a new one in some steps: for tests that
// disturb them at every point and then look for neither.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/context_writer.h"
#include "tests/support/sample_context.h"

namespace longheads {

class ContextScenario {
 public:
  // A new file; one in place of an old one; one appended to; and one appended to anew after an append that
  // was interrupted.
  static std::vector<ContextScenario> All();

  const std::string& name() const { return name_; }
  // Makes the old file.
  Status Prepare(const std::string& path) const;
  // From the old text to the new one: opens a writer, commits, finishes. Calls step() after each call that
  // ended well: n_steps() times.
  Status Run(const std::string& path, const std::function<void()>& step) const;
  int n_steps() const { return 2 + static_cast<int>(new_ends_.size() - first_); }

  // After `steps` of Run: what is wrong with what stands at `path` and beside it; empty where readers see the
  // old text or the new one (the new one from the last step on, when both superblocks name it, and not before
  // all is committed), and the next writer finds every commit that had ended. The file may have been left by
  // a call that was cut short.
  std::string Problem(const std::string& path, int steps) const;
  // Goes on with whatever is there, to the new text.
  Status Recover(const std::string& path) const;
  bool IsNew(const std::string& path) const;

 private:
  enum class Kind { kNew, kReplace, kAppend, kAppendAnew };
  ContextScenario(std::string name, Kind kind, std::vector<uint64_t> old_ends,
                  std::vector<uint64_t> new_ends);

  bool appends() const { return kind_ == Kind::kAppend || kind_ == Kind::kAppendAnew; }
  std::string ProblemOfReaders(const std::string& path, int steps) const;
  std::string ProblemOfPartial(const std::string& path, int steps) const;
  std::string ProblemOfAppend(const std::string& path, int steps) const;
  Status CommitAndFinish(ContextWriter& writer, std::size_t first, const std::function<void()>& step) const;

  std::string name_;
  Kind kind_;
  SampleContext old_;
  SampleContext new_;
  std::vector<uint64_t> old_ends_;
  std::vector<uint64_t> new_ends_;  // where text is appended, the old ones come first
  std::size_t first_ = 0;           // the first of new_ends_ that Run commits
};

}  // namespace longheads
