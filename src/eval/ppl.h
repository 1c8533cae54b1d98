// Perplexity against length. A text is tokenised once; sample s of k begins at its token floor(s N / k), N
// the text's tokens, with BOS before it where the vocabulary asks for one. For each sample and each length n,
// BOS included, tokens [0, n - S) are read as prompt and the S after them are scored, each given everything
// before it in the sample: the first by what the prompt left, the others while those before them are decoded,
// as when a model answers (quest selects in decode alone, moba in the prompt alone). The perplexity is the
// exponential of the mean negative log-likelihood over the tokens of all samples.
//
// A sample is read once for all its lengths n1 < n2 < ...: up to n1 - S, then on to n2 - S, and so on, and
// each length scores on a fork. For methods whose choices depend on where a call of the model begins or ends
// (esa, infllm, landmark, lm-infinite) these are the calls, and a length among others is another case than
// the same length alone; for all other methods both are the same bits. Methods that follow the text's length
// (Engine::FollowsTextLength) are told n and read the sample anew for each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "eval/ppl_journal.h"
#include "eval/task_run.h"

namespace longheads {

struct PplOptions {
  std::vector<std::string> attention;  // specs
  std::vector<int64_t> lengths;        // tokens; any order
  int64_t n_samples = 1;
  int64_t n_score = 256;  // S
  std::string text;
  std::string text_name;  // for the records
  std::string out_dir;    // empty: nothing is kept
  std::string backend = "auto";
  std::string rope;           // how `load` changes the model's own frequencies, as typed; for the records
  Shard shard = {};           // of samples; count > 1: DIR/ppl-2of4.jsonl
  bool retry_failed = false;  // runs cases that have failed before once more
  // A method that cannot be loaded has its cases fail, and the others go on; else it ends the run before the
  // first case.
  bool keep_going = false;
};

// What an application hears of a run; all but `load` may be empty.
struct PplHooks {
  std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> load;
  // The text has become tokens; n_lost of its bytes have none.
  std::function<void(int64_t n_tokens, std::size_t n_lost)> on_text;
  // A method's cases begin; the engine lives until the next one's.
  std::function<void(const Engine& engine, const std::string& attention)> on_method;
  // Tokens are about to be read, or scored; what it returns hears of the share that is done.
  std::function<std::function<void(double)>(const std::string& attention, const PplCase& c, bool scoring,
                                            int64_t n_tokens)>
      on_work;
  // A case is done (or was found in the file): number `done` of n_cases.
  std::function<void(const PplRecord& record, bool from_file, int64_t done, int64_t n_cases)> on_case;
  const CancelToken* cancel = nullptr;
};

// The text's token with which a sample begins. What fits behind it does not depend on the lengths of a run,
// so that a later run with longer ones goes on with the same samples.
int64_t PplOffset(int64_t sample, int64_t n_samples, int64_t n_text);

// Runs every case of the shard that out_dir does not hold yet, method by method and sample by sample. A case
// that fails is kept as failed, with its reason; the others go on, but where a sample cannot be read on, its
// longer cases fail with it. `records` gets all cases that are done, also where an Error ends the run.
// Methods and options are checked before the first case, and the text must be long enough that samples of the
// longest length do not overlap.
Status RunPpl(const PplOptions& options, const PplHooks& hooks, std::vector<PplRecord>& records);

}  // namespace longheads
