// Passkey retrieval on a model: reads every case's prompt, lets the model answer, and counts the forced
// answer's digits. The text before the keys is the same in all cases of one method and is read once where the
// method allows it (Engine::CallUnit); what the cache held does not change a result.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/selection_trace.h"
#include "eval/passkey_journal.h"
#include "eval/passkey_prompt.h"
#include "eval/prompt_reader.h"
#include "eval/task_run.h"

namespace longheads {

struct PasskeyAnswer {
  std::string text;
  bool correct = false;
  int64_t digits_right = 0;
  int64_t digits = 0;
};

// Greedy, from the prompt on; and once more with the true answer forced. An interrupt is an Error. `trace`
// ends with the free answer; may be null.
Result<PasskeyAnswer> AnswerPasskey(Engine& engine, PromptForm form, const Prompt& prompt, int64_t key,
                                    PromptReader::Prompted prompted, int64_t max_tokens,
                                    const CancelToken* cancel, SelectionTrace* trace = nullptr);

struct PasskeyOptions {
  std::vector<std::string> attention;  // specs
  std::vector<int64_t> lengths;        // tokens
  int64_t n_depths = 10;
  int64_t n_repeats = 1;
  uint64_t seed = 0;
  std::string form = "auto";     // plain, chat; auto: chat where the model has a template
  std::string filler = "lines";  // line, lines
  int64_t max_tokens = 0;        // of a free answer; 0: 32 in the chat form, 10 in the plain one
  std::string out_dir;           // empty: nothing is kept
  std::string backend = "auto";
  std::string rope;           // how `load` changes the model's own frequencies, as typed; for the records
  std::string trace_dir;      // gets a trace of each case that is run; empty: none
  Shard shard = {};           // count > 1: DIR/passkey-2of4.jsonl
  bool retry_failed = false;  // runs cases that have failed before once more
  // A method that cannot be loaded has its cases fail, and the others go on; else it ends the run before the
  // first case.
  bool keep_going = false;
};

inline constexpr int64_t kChatAnswerTokens = 32;
inline constexpr int64_t kPlainAnswerTokens = 10;

// What an application hears of a run; all but `load` may be empty.
struct PasskeyHooks {
  std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> load;
  // A method's cases begin; the engine lives until the next one's.
  std::function<void(const Engine& engine, const std::string& attention)> on_method;
  // A case's prompt is about to be read, n_tokens of it; what it returns hears of the share that is done.
  std::function<std::function<void(double)>(const std::string& attention, const PasskeyCase& c,
                                            int64_t n_tokens)>
      on_prefill;
  // A case is done (or was found in the file): number `done` of n_cases.
  std::function<void(const PasskeyRecord& record, bool from_file, int64_t done, int64_t n_cases)> on_case;
  const CancelToken* cancel = nullptr;
};

// Runs every case of the shard that out_dir does not hold yet: method by method, and within one by how deep
// the key lies, so that the common text only grows. A case that fails is kept as failed, with its reason; the
// others go on. `records` gets all cases that are done, also where an Error ends the run. Methods and options
// are checked before the first case.
Status RunPasskey(const PasskeyOptions& options, const PasskeyHooks& hooks,
                  std::vector<PasskeyRecord>& records);

}  // namespace longheads
