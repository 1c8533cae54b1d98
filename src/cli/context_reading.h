// What `ingest` and `context append` do alike: they read a text into a context file, and say how far they
// are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cli/model_options.h"
#include "engine/context.h"

namespace longheads {

// Pages of a context file come as they are asked for; they may not fill the memory: without --kv-ram, half of
// what is free beside the model.
void LimitPages(EngineOptions& options);

// Pages of what is read go to the context file at `path`: sets the folder, and refuses other wishes.
Status SendPagesTo(const std::string& path, const ModelOptions& given, EngineOptions& options);

// Leaves out of --help what SendPagesTo refuses.
void HideFolderOptions(CLI::App& app);

// Says on stderr how many bytes of a text have no token in the vocabulary, where there are any.
Status SayWhatIsLeftOut(const Engine& engine, std::string_view text, bool quiet,
                        std::string_view what = "the text");

// Says on stderr what reads a text of n tokens, and what there is to warn of: of the method, and of the
// folder that pages go to.
void AnnounceReading(const Engine& engine, int64_t n_tokens, const std::string& folder);

// With progress on stderr, unless `quiet`; an interrupt says that the work can go on.
Status ReadInto(ContextIngest& ingest, std::span<const TokenId> tokens, bool quiet);

}  // namespace longheads
