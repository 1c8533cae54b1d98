// Texts that outlive the process: read block by block into a context file, and opened from it again. The file
// is formats/context_writer.h and context_reader.h; pages lie in it and come as the store asks for them
// (kv/pool.h). An engine that is given a context must let pages leave memory (EngineOptions::kv_may_leave),
// and be loaded with what the file's setup says (OptionsFor).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/context_setup.h"
#include "engine/engine.h"
#include "formats/context_reader.h"
#include "formats/context_writer.h"

namespace longheads {

class ContextPages;

// What the header of a context file, or of one that is not finished yet, says.
Result<ContextSetup> ReadContextSetup(const std::string& path);

// `options` with what the setup says in the place of method, types and RoPE, which `options` may leave open
// ("auto", nothing) or say alike: else they are refused. The rest is how, not what: threads, memory, kernels.
Result<EngineOptions> OptionsFor(const ContextSetup& setup, EngineOptions options);

// An error that says why, unless the engine is the one that the file at `path` was made with; and makes it
// expect the text as it did then.
Status CheckMadeWith(Engine& engine, const std::string& path, const ContextHeader& header,
                     const ContextSetup& setup);

// The setup of what `engine` reads; it was loaded with `options`.
Result<ContextSetup> SetupOf(const Engine& engine, const EngineOptions& options, int64_t expected_tokens,
                             bool chat, const std::string& source);

// A text that is being read into a file. One at a time in an engine, and no other session beside it.
class ContextIngest {
 public:
  // Begins PATH.partial; `restart`: also where one was begun, which is thrown away. Not before memory and
  // disk were found to have room for n_tokens in its place.
  static Result<std::unique_ptr<ContextIngest>> Begin(Engine& engine, const std::string& path,
                                                      const ContextSetup& setup, bool restart,
                                                      int64_t n_tokens = 0);
  // Goes on with PATH.partial behind its last whole block.
  static Result<std::unique_ptr<ContextIngest>> Resume(Engine& engine, const std::string& path);
  // Adds to a finished file, behind what an interrupted one had added; what stood there stays readable until
  // Finish.
  // `restart`: without what an interrupted Append had added, which is dropped. Not before the engine was
  // found to be the file's, and memory and disk to have room for n_new tokens in its place.
  static Result<std::unique_ptr<ContextIngest>> Append(Engine& engine, const std::string& path,
                                                       bool restart = false, int64_t n_new = 0);
  ~ContextIngest();

  const ContextSetup& setup() const { return setup_; }
  // ContextWriter::Resumed's: an earlier Append had added all of its text and was interrupted while it
  // finished; how many tokens there were before.
  const std::optional<uint64_t>& tokens_before_interrupted_finish() const {
    return tokens_before_interrupted_finish_;
  }
  // What has been read and is on disk; where a block was read but could not be written, as on a full disk,
  // with that block, which the next call of Read or Finish tries to write first.
  const Session& session() const { return session_; }
  // Tokens that are on disk for good, whatever happens to this process.
  int64_t committed() const { return committed_; }
  // Unless something else cut the file since, as a call has found: then it is to be read anew.
  bool was_cut() const;

  // Looks whether the disk has room for them, and reads the next tokens, in blocks, each of which is on disk
  // for good before the next begins; one block where the method's calls may not be cut (Engine::CallUnit). An
  // interrupt or an error of the model loses the block that was being read. What was resumed is read in
  // blocks as large as before, to the same bytes, unless there is less memory now than they take: then they
  // are fitted to the engine's own --kv-ram, and to the most parts.
  Status Read(std::span<const TokenId> tokens, const ForwardControl& control);
  // Makes it the file that is opened.
  Status Finish();

 private:
  ContextIngest(Engine& engine, ContextSetup setup, std::shared_ptr<ContextWriter> writer);
  // In blocks as those before; or in the engine's own parts, and with no more memory than it has.
  static Result<std::unique_ptr<ContextIngest>> GoOn(Engine& engine, ContextWriter::Resumed resumed,
                                                     const std::string& path,
                                                     const std::optional<BlockFit>& own);
  Status Commit();

  Engine& engine_;
  ContextSetup setup_;
  std::shared_ptr<ContextWriter> writer_;
  std::shared_ptr<ContextPages> pages_;
  std::shared_ptr<PageFile> pages_before_;  // where the engine's pages went
  Session session_;
  BlockFit blocks_before_;
  int64_t committed_ = 0;  // tokens of the session
  std::optional<uint64_t> tokens_before_interrupted_finish_;
  uint64_t replaced_bytes_ = 0;  // of the method's state, which the next commit writes anew
};

// The text of a context file, as it was when it was finished; the file must stay as long as sessions of it.
// `setup`, where there is one, becomes what this text was read with: another may have taken the file's place
// since it was last asked for.
Result<Session> OpenContext(Engine& engine, const std::string& path, ContextSetup* setup = nullptr);

}  // namespace longheads
