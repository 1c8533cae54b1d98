// Reads the prompts of an experiment on one engine. What a prompt shares with those that follow is read once
// and kept; the prompt goes on from a fork of it, where the method allows that without a change of any bit
// (Engine::CallUnit). Which prompts come, and what is asked of them, is the experiment's.
#pragma once

#include <functional>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "eval/prompt.h"

namespace longheads {

// Needs memory for one session beside the one that it hands out.
class PromptReader {
 public:
  // Without `share`, each prompt is read from its beginning. With it no bit is another: what is kept ends
  // where the method allows a call to.
  PromptReader(Engine& engine, bool share) : engine_(engine), share_(share), common_(engine.NewSession()) {}

  struct Prompted {
    Session session;            // holds the prompt
    std::vector<float> hidden;  // [embed_dim], after its last token
    int64_t shared;             // tokens that had been read before
  };
  // `start` is told how many tokens are to be read and gives what hears of the share that is done; may be
  // empty.
  using Start = std::function<std::function<void(double)>(int64_t n_tokens)>;
  // Keeps the prompt's n_common tokens.
  Result<Prompted> Read(const Prompt& prompt, const CancelToken* cancel, const Start& start);
  // Forgets what was read: the engine's attention has changed.
  void Forget() { common_ = engine_.NewSession(); }

 private:
  Engine& engine_;
  bool share_;
  Session common_;  // a beginning that later prompts are expected to have as well
};

}  // namespace longheads
