// What `ingest` and `context append` do alike: they read a text into a context file, and say how far they
// are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/context.h"

namespace longheads {

// Says on stderr how many bytes of a text have no token in the vocabulary, where there are any.
Status SayWhatIsLeftOut(const Engine& engine, std::string_view text, bool quiet);

// Says on stderr what reads a text of n tokens, and what the method warns of.
void AnnounceReading(const Engine& engine, int64_t n_tokens);

// With progress on stderr, unless `quiet`; an interrupt says that the work can go on.
Status ReadInto(ContextIngest& ingest, std::span<const TokenId> tokens, bool quiet);

}  // namespace longheads
