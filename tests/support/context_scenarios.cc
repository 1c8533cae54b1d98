#include "tests/support/context_scenarios.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>

#include "formats/context_reader.h"

namespace longheads {
namespace {

// An append that nobody finished.
const std::vector<uint64_t> kAbandonedEnds = {4, 7};

// Of a file whose writer said that it is finished: either superblock may be damaged later.
std::string ProblemOfSuperblocks(const std::string& path) {
  const auto file = RawFile::Open(path, {});
  if (!file) return file.error().message;
  const auto frame = ReadContextFrame(*file);
  if (!frame) return frame.error().message;
  for (const auto& superblock : frame->superblocks) {
    if (!superblock || superblock->finished != frame->superblock.finished) {
      return "one superblock alone names the new text";
    }
  }
  return "";
}

std::vector<uint64_t> First(const std::vector<uint64_t>& ends, std::size_t n) {
  return {ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(n)};
}

}  // namespace

ContextScenario::ContextScenario(std::string name, Kind kind, std::vector<uint64_t> old_ends,
                                 std::vector<uint64_t> new_ends)
    : name_(std::move(name)),
      kind_(kind),
      old_(kind == Kind::kReplace ? 1 : 0),
      old_ends_(std::move(old_ends)),
      new_ends_(std::move(new_ends)) {
  if (appends()) first_ = old_ends_.size();
}

std::vector<ContextScenario> ContextScenario::All() {
  return {{"new", Kind::kNew, {}, {3, 6, 8}},
          {"replace", Kind::kReplace, {5}, {3, 6}},
          {"append", Kind::kAppend, {2, 4}, {2, 4, 5, 9}},
          {"append-anew", Kind::kAppendAnew, {4}, {4, 5, 9}}};
}

Status ContextScenario::Prepare(const std::string& path) const {
  if (kind_ == Kind::kNew) return {};
  LH_TRY(old_.Write(path, old_ends_));
  if (kind_ != Kind::kAppendAnew) return {};
  LH_ASSIGN(auto abandoned, ContextWriter::Append(path, ContextWriter::From::kFinished, false));
  return new_.CommitAll(*abandoned.writer, kAbandonedEnds, first_);
}

Status ContextScenario::CommitAndFinish(ContextWriter& writer, std::size_t first,
                                        const std::function<void()>& step) const {
  for (std::size_t i = first; i < new_ends_.size(); ++i) {
    LH_TRY(new_.Commit(writer, i == 0 ? 0 : new_ends_[i - 1], new_ends_[i]));
    step();
  }
  LH_TRY(writer.Finish());
  step();
  return {};
}

Status ContextScenario::Run(const std::string& path, const std::function<void()>& step) const {
  if (appends()) {
    LH_ASSIGN(auto append, ContextWriter::Append(path, ContextWriter::From::kFinished, false));
    step();
    return CommitAndFinish(*append.writer, first_, step);
  }
  LH_ASSIGN(auto writer, ContextWriter::Create(path, SampleContext::Header(), {}));
  step();
  return CommitAndFinish(*writer, 0, step);
}

bool ContextScenario::IsNew(const std::string& path) const {
  const auto reader = ContextReader::Open(path, {});
  return reader && new_.Difference(*reader, new_ends_).empty();
}

std::string ContextScenario::ProblemOfReaders(const std::string& path, int steps) const {
  if (!std::filesystem::exists(path)) {
    return kind_ == Kind::kNew && steps < n_steps() ? "" : "there is no file";
  }
  const auto reader = ContextReader::Open(path, {});
  if (!reader) return "readers are told: " + reader.error().message;
  const std::string from_new = new_.Difference(*reader, new_ends_);
  if (from_new.empty()) {
    if (steps == n_steps()) return ProblemOfSuperblocks(path);
    return steps == n_steps() - 1 ? "" : "the new text before all of it was committed";
  }
  if (steps == n_steps()) return "not the new text: " + from_new;
  const std::string from_old = kind_ == Kind::kNew ? "there was none" : old_.Difference(*reader, old_ends_);
  return from_old.empty() ? "" : "neither the old text: " + from_old + "; nor the new one: " + from_new;
}

// Between `steps` and the next one, so many commits or one more are found.
std::string ContextScenario::ProblemOfPartial(const std::string& path, int steps) const {
  const std::size_t n_committed = steps == 0 ? 0 : static_cast<std::size_t>(steps - 1);
  if (!std::filesystem::exists(ContextWriter::PartialPath(path))) {
    return n_committed == 0 ? "" : "what was committed is gone";
  }
  const auto resumed = ContextWriter::Resume(path, false);
  if (!resumed) return n_committed == 0 ? "" : "who resumes is told: " + resumed.error().message;
  for (const std::size_t n : {n_committed, n_committed + 1}) {
    if (n < 1 || n > new_ends_.size()) continue;
    if (new_.Difference(resumed->contents, resumed->writer->file(), First(new_ends_, n)).empty()) return "";
  }
  return fmt::format("not what {} commits made, nor one more", n_committed);
}

std::string ContextScenario::ProblemOfAppend(const std::string& path, int steps) const {
  const std::size_t n_committed = steps == 0 ? 0 : static_cast<std::size_t>(steps - 1);
  const auto append = ContextWriter::Append(path, ContextWriter::From::kNewest, false);
  if (!append) return "who appends is told: " + append.error().message;
  const RawFile& file = append->writer->file();
  if (steps == 0 && new_.Difference(append->contents, file, kAbandonedEnds).empty()) return "";
  for (const std::size_t n : {n_committed, n_committed + 1}) {
    if (first_ + n > new_ends_.size()) continue;
    if (new_.Difference(append->contents, file, First(new_ends_, first_ + n)).empty()) return "";
  }
  return fmt::format("not what {} commits made, nor one more", n_committed);
}

std::string ContextScenario::Problem(const std::string& path, int steps) const {
  if (std::string problem = ProblemOfReaders(path, steps); !problem.empty()) return problem;
  if (IsNew(path)) return "";
  return appends() ? ProblemOfAppend(path, steps) : ProblemOfPartial(path, steps);
}

Status ContextScenario::Recover(const std::string& path) const {
  if (IsNew(path)) return {};
  const auto nothing = [] {};
  if (appends()) {
    LH_ASSIGN(auto append, ContextWriter::Append(path, ContextWriter::From::kNewest, false));
    for (std::size_t n = first_; n <= new_ends_.size(); ++n) {
      if (new_.Difference(append.contents, append.writer->file(), First(new_ends_, n)).empty()) {
        return CommitAndFinish(*append.writer, n, nothing);
      }
    }
    append.writer.reset();
    return Run(path, nothing);
  }
  auto resumed = ContextWriter::Resume(path, false);
  if (!resumed) return Run(path, nothing);  // which refuses if anything was committed
  for (std::size_t n = 1; n <= new_ends_.size(); ++n) {
    if (new_.Difference(resumed->contents, resumed->writer->file(), First(new_ends_, n)).empty()) {
      return CommitAndFinish(*resumed->writer, n, nothing);
    }
  }
  return InvalidInput("the partial holds something else");
}

}  // namespace longheads
