#include "tests/support/trace_cases.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "trace/trace_writer.h"

namespace longheads {

TraceCase MakeTraceCase(uint32_t seed) {
  std::mt19937 random(seed);
  TraceCase one;
  one.header = {.program = "test",
                .model = "tiny <model> & \"friends\"",
                .attention = "longheads,chunk=16,window=64,begin=64",
                .n_layers = 2,
                .n_heads = 4,
                .n_kv_heads = 2,
                .window = 128,
                .prompt_tokens = 200,
                .compute = "f32",
                .kv_type = "f32",
                .blocks = BlockGrid{.first = 0, .tokens = 16},
                .columns = {.first = 0, .tokens = 32},
                .needle = TextRange{.begin = 300, .end = 320}};
  for (int i = 0; i < 205; ++i)
    one.tokens.Add(static_cast<int32_t>(random() % 49152), fmt::format("wörd{} ", i % 7));
  for (int64_t position = 199; position < 204; ++position) {
    TokenSelection selection{
        .position = position, .phase = position == 199 ? Phase::kPrefill : Phase::kDecode, .heads = {}};
    for (int row = 0; row < 8; ++row) {
      HeadSelection head;
      if (row % 4 == 2) head = selection.heads.back();
      for (int32_t block = 0; block < 12 && row % 4 < 2; ++block) {
        if (random() % 3 == 0) continue;
        if (head.seen.empty() || head.seen.back().end < block * 16) {
          head.seen.push_back({block * 16, block * 16 + 16});
        } else {
          head.seen.back().end += 16;
        }
        head.taken.push_back(
            {block, row == 1 ? BlockChoice::kNoScore : static_cast<float>(random() % 1000) / 7.0f});
      }
      selection.heads.push_back(head);
    }
    one.selections.push_back(selection);
  }
  for (int64_t begin = 0; begin < 200; begin += 100) {
    PromptCounts counts{.token_begin = begin, .token_end = begin + 100, .heads = {}};
    for (int row = 0; row < 8; ++row) {
      HeadCounts head;
      for (int32_t column = 0; column < 7; ++column) {
        if (random() % 4 == 0) continue;
        head.seen.push_back({column, static_cast<int32_t>(random() % 100 + 1)});
        if (random() % 2 == 0) head.taken.push_back({column, static_cast<int32_t>(random() % 200 + 1), 0.5f});
      }
      counts.heads.push_back(head);
    }
    one.counts.push_back(counts);
  }
  return one;
}

std::string TraceBytes(const TraceCase& one) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("longheads-trace-bytes-{}", getpid());
  Result<TraceWriter> writer = TraceWriter::Create(path, one.header);
  if (!writer) throw std::runtime_error(writer.error().message);
  writer->AddTokens(one.tokens);
  for (const PromptCounts& counts : one.counts) writer->AddCounts(counts);
  for (const TokenSelection& selection : one.selections) writer->AddSelection(selection);
  if (const Status finished = writer->Finish(); !finished) throw std::runtime_error(finished.error().message);
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return bytes;
}

}  // namespace longheads
