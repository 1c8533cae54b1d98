// A session as what a context file holds of it: tokens, places of pages, and every layer's state of the
// method; and back. What belongs to a context beside, and when it is saved, is engine/context.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "formats/context_contents.h"
#include "formats/context_writer.h"
#include "kv/page_file.h"

namespace longheads {

class SessionArchive {
 public:
  // What one commit adds.
  struct Delta {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> phases;
    uint64_t model_tokens = 0;
    std::vector<ContextPageUpdate> pages;
  };

  // Pages of the engine's sessions are written there from now on, and no longer to what is returned.
  static std::shared_ptr<PageFile> WriteTo(Engine& engine, std::shared_ptr<PageFile> file);

  // What is new in a session since it had `committed` tokens, and was Saved; its pages are in the file of
  // WriteTo when it returns, though not synced.
  static Result<Delta> Save(Engine& engine, const Session& session, int64_t committed);
  // What is new in its states: of each layer what was added, and what changes.
  static Status SaveStates(const Session& session, const ContextStateSink& take);
  // Both are on disk for good.
  static void Saved(Session& session);

  // Fills a new session. States are read from `pages`' file, and pages when they are asked for. `path` begins
  // what is said where something does not fit.
  static Status Restore(const Engine& engine, const ContextContents& contents,
                        std::shared_ptr<PageFile> pages, const std::string& path, Session& session);

 private:
  static uint8_t ByteOf(Session::Fed fed);
};

}  // namespace longheads
