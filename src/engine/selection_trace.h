// Writes a trace file (trace/trace_writer.h) while a session reads a prompt and answers: hears what the
// engine's heads choose and see, and adds the text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "trace/trace_writer.h"

namespace longheads {

struct SelectionTraceOptions {
  std::string path = {};
  std::string program = {};    // name and version, for the header
  std::string attention = {};  // as --attn takes it, for the header
  bool prompt = false;         // the prompt's tokens too, as counts
  std::string needle = {};     // text in the prompt where the answer lies; empty: not known
};

// What the query of each answered token's predecessor saw: of the prompt's last token, and of each token of
// the answer that another follows. One session, the first of a batch.
class SelectionTrace : public SelectionObserver {
 public:
  // The engine tells it from now on, until it goes; one trace at a time. The prompt is all that the session
  // has read when its answer begins: in any number of calls, some of which may be over (what they read is not
  // counted). Refuses a file that cannot be made.
  static Result<std::unique_ptr<SelectionTrace>> Start(Engine& engine, const SelectionTraceOptions& options,
                                                       std::span<const TokenId> prompt);
  ~SelectionTrace() override;

  void OnChoice(const BlockChoice& choice) override;
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override;
  void OnLayerDone(int64_t layer) override;

  // Ends the file, with the answer that the prompt got. A write that failed, now or before, is said here.
  Status Finish(std::span<const TokenId> answer);
  uint64_t bytes() const { return writer_.bytes(); }

 private:
  SelectionTrace(Engine& engine, const TraceHeader& header, std::span<const TokenId> prompt, bool count,
                 TraceWriter writer);

  Engine& engine_;
  std::vector<TokenId> prompt_;
  TraceWriter writer_;
  SelectionRecorder recorder_;
  std::optional<SelectionCounter> counter_;
};

}  // namespace longheads
