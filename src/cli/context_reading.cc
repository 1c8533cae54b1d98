#include "cli/context_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/memory.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace longheads {

void LimitPages(EngineOptions& options) {
  if (options.kv_ram > 0) return;
  const uint64_t available = AvailableMemory();
  std::error_code error;
  const uint64_t weights = std::filesystem::file_size(options.model_path, error);
  const uint64_t free = error ? available : available - std::min(available, weights);
  options.kv_ram = std::max<uint64_t>(free / 2, 64 << 20);
}

Status SendPagesTo(const std::string& path, const ModelOptions& given, EngineOptions& options) {
  if (given.kv_disk || options.kv_disk_max > 0) {
    return InvalidInput(
        fmt::format("--kv-disk and --kv-disk-max have no place here: keys and values go to {} itself", path));
  }
  options.kv_disk = std::filesystem::absolute(path).parent_path().string();
  LimitPages(options);
  return {};
}

void HideFolderOptions(CLI::App& app) {
  for (const char* name : {"--kv-disk", "--kv-disk-max"}) app.get_option(name)->group("");
}

Status SayWhatIsLeftOut(const Engine& engine, std::string_view text, bool quiet, std::string_view what) {
  if (quiet) return {};
  LH_ASSIGN(const std::size_t n, engine.tokenizer().BytesWithoutToken(text, &InterruptToken()));
  if (n > 0) Note("note: {} bytes of {} have no token in this vocabulary and are left out\n", n, what);
  return {};
}

void AnnounceReading(const Engine& engine, int64_t n_tokens, const std::string& folder) {
  Note("{}: {} tokens, {} threads, {}\n", engine.file().name(), n_tokens, engine.threads(),
       engine.DescribeKernels());
  Note("{}\n", engine.ExplainAttention(n_tokens));
  NoteDisk(folder);
  for (const std::string& warning : engine.Warnings(n_tokens)) Note("warning: {}\n", warning);
  if (engine.CallUnit() == 0)
    Note("note: this method reads a text in one piece, of which an interrupt keeps nothing\n");
}

Status ReadInto(ContextIngest& ingest, std::span<const TokenId> tokens, bool quiet) {
  Progress progress("reading", static_cast<int64_t>(tokens.size()));
  const Status read = ingest.Read(tokens, {.cancel = &InterruptToken(), .progress = [&](double share) {
                                             if (!quiet) progress(share);
                                           }});
  progress.Finish();
  if (read || ingest.was_cut()) return read;
  const std::string what = read.error().kind == ErrorKind::kCancelled ? "interrupted" : read.error().message;
  if (ingest.committed() == 0) return MakeError(read.error().kind, what + "; nothing of the text was kept");
  const std::string kept = fmt::format("{}; the text up to token {} is kept", what, ingest.committed());
  // What is wrong in a file is wrong for the same command too.
  const bool goes_on = read.error().kind != ErrorKind::kInvalidInput;
  return MakeError(read.error().kind, kept + (goes_on ? ", and the same command goes on from there" : ""));
}

}  // namespace longheads
