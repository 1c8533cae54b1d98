// What a trace file holds, and its parts as bytes and back (docs/trace.md is the specification). Writing
// files is trace_writer.h's, reading them trace_reader.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/selection_counter.h"
#include "attention/selection_recorder.h"
#include "base/result.h"

namespace longheads {

inline constexpr uint32_t kTraceVersion = 1;

// Bytes [begin, end) of the text.
struct TextRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const TextRange&) const = default;
};

struct TraceHeader {
  std::string program;    // what wrote it, and its version
  std::string model;      // the file, without its folder
  std::string attention;  // the method, as --attn takes it
  int64_t n_layers = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t window = 0;         // that the model was trained with
  int64_t prompt_tokens = 0;  // as the model reads them
  std::string compute;        // f32, bf16, int8, bf16-int8
  std::string kv_type;
  // Blocks that the method chooses among; nothing: it does not choose.
  std::optional<BlockGrid> blocks;
  // Columns of the prompt's counts.
  BlockGrid columns = {.first = 0, .tokens = 256};
  // Where, in the prompt's text, the answer lies.
  std::optional<TextRange> needle;

  bool operator==(const TraceHeader&) const = default;
};

// Tokens that the model reads, in the order of the text, each with the bytes it stands for.
struct TraceTokens {
  std::vector<int32_t> ids;
  std::vector<int64_t> ends;  // where in `text` each token's bytes end
  std::string text;

  void Add(int32_t id, std::string_view bytes) {
    ids.push_back(id);
    text += bytes;
    ends.push_back(static_cast<int64_t>(text.size()));
  }
  bool operator==(const TraceTokens&) const = default;
};

// Where `wanted` stands first in the text, if it does.
std::optional<TextRange> FindText(std::string_view text, std::string_view wanted);

// The header as JSON, one line.
std::string TraceHeaderJson(const TraceHeader& header);
Result<TraceHeader> ParseTraceHeader(std::string_view json);

// Payloads of records. Appended to `bytes`.
void EncodeTokens(const TraceTokens& tokens, std::string& bytes);
void EncodeSelection(const TokenSelection& selection, std::string& bytes);
void EncodeCounts(const PromptCounts& counts, std::string& bytes);

// Nothing where the bytes are no such payload, whole and with nothing behind it. n_rows = n_layers n_heads.
std::optional<TraceTokens> DecodeTokens(std::string_view bytes);
std::optional<TokenSelection> DecodeSelection(std::string_view bytes, int64_t n_rows);
std::optional<PromptCounts> DecodeCounts(std::string_view bytes, int64_t n_rows);

}  // namespace longheads
