#include "trace/trace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/json.h"

namespace longheads {
namespace {

using Json = nlohmann::json;

// ---- Numbers as bytes: LEB128 without sign, and IEEE floats, both little-endian

void PutNumber(uint64_t x, std::string& bytes) {
  while (x >= 0x80) {
    bytes.push_back(static_cast<char>(x | 0x80));
    x >>= 7;
  }
  bytes.push_back(static_cast<char>(x));
}
void PutNumber(int64_t x, std::string& bytes) { PutNumber(static_cast<uint64_t>(x), bytes); }

void PutFloat(float x, std::string& bytes) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(bits >> shift));
}

// Takes numbers off bytes; once there are none, it has failed and gives zeros.
class Taker {
 public:
  explicit Taker(std::string_view bytes) : bytes_(bytes) {}

  uint8_t Byte() {
    if (bytes_.empty()) return Fail();
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  // At most `most`.
  int64_t Number(int64_t most = std::numeric_limits<int64_t>::max()) {
    uint64_t x = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const uint8_t byte = Byte();
      x |= uint64_t{byte & 0x7fu} << shift;
      if (byte >= 0x80) continue;
      return x <= static_cast<uint64_t>(most) ? static_cast<int64_t>(x) : Fail();
    }
    return Fail();
  }
  // How many things follow that take at least so many bytes each.
  int64_t Count(int64_t least_bytes) { return Number(static_cast<int64_t>(bytes_.size()) / least_bytes); }
  float Float() {
    uint32_t bits = 0;
    for (int shift = 0; shift < 32; shift += 8) bits |= uint32_t{Byte()} << shift;
    return std::bit_cast<float>(bits);
  }
  std::string_view Rest() { return std::exchange(bytes_, {}); }

  bool failed() const { return failed_; }
  bool done() const { return !failed_ && bytes_.empty(); }

 private:
  uint8_t Fail() {
    failed_ = true;
    bytes_ = {};
    return 0;
  }

  std::string_view bytes_;
  bool failed_ = false;
};

// Positions and sizes that later sums of two cannot overflow.
constexpr int64_t kMost = int64_t{1} << 48;
constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();

// ---- Rows: a row that says what the one before it said is one byte

enum RowFlags : uint8_t { kAsBefore = 1, kScores = 2 };

bool SameFloat(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool Same(const HeadSelection& a, const HeadSelection& b) {
  return a.seen == b.seen && std::ranges::equal(a.taken, b.taken, [](const auto& x, const auto& y) {
           return x.block == y.block && SameFloat(x.score, y.score);
         });
}

void Encode(const HeadSelection& head, std::string& bytes) {
  const bool scores = std::ranges::any_of(head.taken, [](const auto& t) { return !std::isnan(t.score); });
  bytes.push_back(static_cast<char>(scores ? kScores : 0));
  PutNumber(head.seen.size(), bytes);
  int64_t at = 0;
  for (const KeyRange& range : head.seen) {
    PutNumber(range.begin - at, bytes);
    PutNumber(range.end - range.begin, bytes);
    at = range.end;
  }
  PutNumber(head.taken.size(), bytes);
  int64_t next = 0;
  for (const TakenBlock& taken : head.taken) {
    PutNumber(taken.block - next, bytes);
    next = int64_t{taken.block} + 1;
    if (scores) PutFloat(taken.score, bytes);
  }
}

HeadSelection DecodeSelectionRow(uint8_t flags, Taker& take) {
  HeadSelection head;
  int64_t at = 0;
  for (int64_t n = take.Count(2); n > 0 && !take.failed(); --n) {
    const int64_t begin = at + take.Number(kMost);
    at = begin + take.Number(kMost);
    if (at > kMost) return head;  // its end is then no end of the payload's
    head.seen.push_back({begin, at});
  }
  int64_t next = 0;
  for (int64_t n = take.Count(1); n > 0 && !take.failed(); --n) {
    const int64_t block = next + take.Number(kMost32 - next);
    next = std::min(block + 1, kMost32);
    head.taken.push_back(
        {static_cast<int32_t>(block), (flags & kScores) != 0 ? take.Float() : BlockChoice::kNoScore});
  }
  return head;
}

bool Same(const HeadCounts& a, const HeadCounts& b) {
  return a.seen == b.seen && std::ranges::equal(a.taken, b.taken, [](const auto& x, const auto& y) {
           return x.column == y.column && x.times == y.times && SameFloat(x.mean_score, y.mean_score);
         });
}

void Encode(const HeadCounts& head, std::string& bytes) {
  const bool scores =
      std::ranges::any_of(head.taken, [](const auto& t) { return !std::isnan(t.mean_score); });
  bytes.push_back(static_cast<char>(scores ? kScores : 0));
  PutNumber(head.seen.size(), bytes);
  int64_t next = 0;
  for (const HeadCounts::Seen& seen : head.seen) {
    PutNumber(seen.column - next, bytes);
    PutNumber(uint64_t{static_cast<uint32_t>(seen.tokens)}, bytes);
    next = int64_t{seen.column} + 1;
  }
  PutNumber(head.taken.size(), bytes);
  next = 0;
  for (const HeadCounts::Taken& taken : head.taken) {
    PutNumber(taken.column - next, bytes);
    PutNumber(uint64_t{static_cast<uint32_t>(taken.times)}, bytes);
    if (scores) PutFloat(taken.mean_score, bytes);
    next = int64_t{taken.column} + 1;
  }
}

HeadCounts DecodeCountsRow(uint8_t flags, Taker& take) {
  HeadCounts head;
  int64_t next = 0;
  const auto column = [&] {
    const int64_t at = next + take.Number(kMost32 - next);
    next = std::min(at + 1, kMost32);
    return static_cast<int32_t>(at);
  };
  for (int64_t n = take.Count(2); n > 0 && !take.failed(); --n) {
    const int32_t at = column();
    head.seen.push_back({at, static_cast<int32_t>(take.Number(kMost32))});
  }
  next = 0;
  for (int64_t n = take.Count(2); n > 0 && !take.failed(); --n) {
    const int32_t at = column();
    const auto times = static_cast<int32_t>(take.Number(kMost32));
    head.taken.push_back({at, times, (flags & kScores) != 0 ? take.Float() : BlockChoice::kNoScore});
  }
  return head;
}

template <typename Row>
void EncodeRows(const std::vector<Row>& rows, std::string& bytes) {
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (before != nullptr && Same(*before, row)) {
      bytes.push_back(static_cast<char>(kAsBefore));
    } else {
      Encode(row, bytes);
    }
    before = &row;
  }
}

// Rows that repeat one before them take a byte each: what they come to in memory needs a bound of its own.
// 2^25 runs and blocks are 512 MiB; a token that sees 2048 single keys in 270 heads has 2^20.
constexpr std::size_t kMostEntries = std::size_t{1} << 25;

template <typename Row, typename DecodeRow>
std::vector<Row> DecodeRows(int64_t n_rows, Taker& take, const DecodeRow& decode) {
  std::vector<Row> rows;
  std::size_t n_entries = 0;
  for (int64_t i = 0; i < n_rows && !take.failed(); ++i) {
    if (!rows.empty()) n_entries += rows.back().seen.size() + rows.back().taken.size();
    if (n_entries > kMostEntries) break;
    const uint8_t flags = take.Byte();
    if (flags == kAsBefore && !rows.empty()) {
      rows.push_back(Row(rows.back()));
    } else if (flags == 0 || flags == kScores) {
      rows.push_back(decode(flags, take));
    } else {
      break;
    }
  }
  return rows;
}

Json GridJson(const BlockGrid& grid) { return {{"first", grid.first}, {"tokens", grid.tokens}}; }

// Throws what nlohmann's library throws, or where a number is none that a text can have.
int64_t Count(const Json& json, const char* key, int64_t least) {
  const int64_t value = json.at(key).get<int64_t>();
  if (value < least || value > kMost) throw std::out_of_range(key);
  return value;
}

BlockGrid GridOf(const Json& json) {
  return {.first = Count(json, "first", 0), .tokens = Count(json, "tokens", 1)};
}

}  // namespace

std::optional<TextRange> FindText(std::string_view text, std::string_view wanted) {
  const std::size_t at = text.find(wanted);
  if (wanted.empty() || at == std::string_view::npos) return std::nullopt;
  return TextRange{.begin = static_cast<int64_t>(at), .end = static_cast<int64_t>(at + wanted.size())};
}

std::string TraceHeaderJson(const TraceHeader& h) {
  Json json = {{"program", h.program},
               {"model", h.model},
               {"attn", h.attention},
               {"n_layers", h.n_layers},
               {"n_heads", h.n_heads},
               {"n_kv_heads", h.n_kv_heads},
               {"window", h.window},
               {"prompt_tokens", h.prompt_tokens},
               {"compute", h.compute},
               {"kv_type", h.kv_type},
               {"blocks", h.blocks ? GridJson(*h.blocks) : Json()},
               {"columns", GridJson(h.columns)},
               {"needle", h.needle ? Json{{"begin", h.needle->begin}, {"end", h.needle->end}} : Json()}};
  return JsonLine(json);
}

Result<TraceHeader> ParseTraceHeader(std::string_view text) try {
  const Json json = ParseJson(text);
  TraceHeader h{.program = json.at("program"),
                .model = json.at("model"),
                .attention = json.at("attn"),
                .n_layers = Count(json, "n_layers", 1),
                .n_heads = Count(json, "n_heads", 1),
                .n_kv_heads = Count(json, "n_kv_heads", 1),
                .window = Count(json, "window", 0),
                .prompt_tokens = Count(json, "prompt_tokens", 0),
                .compute = json.at("compute"),
                .kv_type = json.at("kv_type"),
                .blocks = {},
                .columns = GridOf(json.at("columns")),
                .needle = {}};
  if (!json.at("blocks").is_null()) h.blocks = GridOf(json.at("blocks"));
  if (const Json& needle = json.at("needle"); !needle.is_null()) {
    h.needle = TextRange{.begin = Count(needle, "begin", 0), .end = Count(needle, "end", 0)};
    if (h.needle->begin > h.needle->end) throw std::out_of_range("needle");
  }
  // Rows of every record: more than this no model has, and memory would be taken for them.
  constexpr int64_t kMostRows = 1 << 20;
  if (h.n_layers > kMostRows || h.n_heads > kMostRows / h.n_layers) throw std::out_of_range("n_layers");
  return h;
} catch (const std::exception& error) {
  return InvalidInput(error.what());
}

void EncodeTokens(const TraceTokens& tokens, std::string& bytes) {
  PutNumber(tokens.ids.size(), bytes);
  int64_t at = 0;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    PutNumber(uint64_t{static_cast<uint32_t>(tokens.ids[i])}, bytes);
    PutNumber(tokens.ends[i] - at, bytes);
    at = tokens.ends[i];
  }
  bytes += tokens.text;
}

std::optional<TraceTokens> DecodeTokens(std::string_view bytes) {
  Taker take(bytes);
  TraceTokens tokens;
  int64_t at = 0;
  for (int64_t n = take.Count(2); n > 0 && !take.failed(); --n) {
    tokens.ids.push_back(static_cast<int32_t>(take.Number(kMost32)));
    at += take.Number(static_cast<int64_t>(bytes.size()) - at);
    tokens.ends.push_back(at);
  }
  if (take.failed()) return std::nullopt;
  tokens.text = take.Rest();
  if (static_cast<int64_t>(tokens.text.size()) != at) return std::nullopt;
  return tokens;
}

void EncodeSelection(const TokenSelection& selection, std::string& bytes) {
  PutNumber(selection.position, bytes);
  bytes.push_back(static_cast<char>(selection.phase));
  EncodeRows(selection.heads, bytes);
}

std::optional<TokenSelection> DecodeSelection(std::string_view bytes, int64_t n_rows) {
  Taker take(bytes);
  TokenSelection selection{.position = take.Number(kMost), .phase = Phase::kPrefill, .heads = {}};
  const uint8_t phase = take.Byte();
  if (phase > static_cast<uint8_t>(Phase::kDecode)) return std::nullopt;
  selection.phase = static_cast<Phase>(phase);
  selection.heads = DecodeRows<HeadSelection>(n_rows, take, DecodeSelectionRow);
  if (!take.done() || static_cast<int64_t>(selection.heads.size()) != n_rows) return std::nullopt;
  return selection;
}

void EncodeCounts(const PromptCounts& counts, std::string& bytes) {
  PutNumber(counts.token_begin, bytes);
  PutNumber(counts.token_end - counts.token_begin, bytes);
  EncodeRows(counts.heads, bytes);
}

std::optional<PromptCounts> DecodeCounts(std::string_view bytes, int64_t n_rows) {
  Taker take(bytes);
  PromptCounts counts;
  counts.token_begin = take.Number(kMost);
  counts.token_end = counts.token_begin + take.Number(kMost);
  counts.heads = DecodeRows<HeadCounts>(n_rows, take, DecodeCountsRow);
  if (!take.done() || static_cast<int64_t>(counts.heads.size()) != n_rows) return std::nullopt;
  return counts;
}

}  // namespace longheads
