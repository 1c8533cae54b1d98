// Trace files: what is written is read again, and nothing else; damaged ones are refused in a sentence.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "tests/support/trace_cases.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

class TraceFile : public testing::Test {
 protected:
  fs::path path_ = fs::temp_directory_path() / fmt::format("longheads-trace-{}", getpid());
  ~TraceFile() override { fs::remove(path_); }
};

void ExpectSame(const TokenSelection& a, const TokenSelection& b) {
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.phase, b.phase);
  ASSERT_EQ(a.heads.size(), b.heads.size());
  for (std::size_t i = 0; i < a.heads.size(); ++i) {
    EXPECT_EQ(a.heads[i].seen, b.heads[i].seen);
    ASSERT_EQ(a.heads[i].taken.size(), b.heads[i].taken.size());
    for (std::size_t t = 0; t < a.heads[i].taken.size(); ++t) {
      EXPECT_EQ(a.heads[i].taken[t].block, b.heads[i].taken[t].block);
      const float score = a.heads[i].taken[t].score;
      if (std::isnan(score)) {
        EXPECT_TRUE(std::isnan(b.heads[i].taken[t].score));
      } else {
        EXPECT_EQ(score, b.heads[i].taken[t].score);
      }
    }
  }
}

void ExpectSame(const PromptCounts& a, const PromptCounts& b) {
  EXPECT_EQ(a.token_begin, b.token_begin);
  EXPECT_EQ(a.token_end, b.token_end);
  ASSERT_EQ(a.heads.size(), b.heads.size());
  for (std::size_t i = 0; i < a.heads.size(); ++i) {
    EXPECT_EQ(a.heads[i].seen, b.heads[i].seen);
    ASSERT_EQ(a.heads[i].taken.size(), b.heads[i].taken.size());
    for (std::size_t t = 0; t < a.heads[i].taken.size(); ++t) {
      EXPECT_EQ(a.heads[i].taken[t].column, b.heads[i].taken[t].column);
      EXPECT_EQ(a.heads[i].taken[t].times, b.heads[i].taken[t].times);
    }
  }
}

TEST_F(TraceFile, GivesBackWhatWasWritten) {
  const TraceCase one = MakeTraceCase(/*seed=*/1);
  {
    Result<TraceWriter> writer = TraceWriter::Create(path_, one.header);
    ASSERT_TRUE(writer) << writer.error().message;
    writer->AddTokens(one.tokens);
    for (const PromptCounts& counts : one.counts) writer->AddCounts(counts);
    for (const TokenSelection& selection : one.selections) writer->AddSelection(selection);
    EXPECT_FALSE(fs::exists(path_));
    ASSERT_TRUE(writer->Finish());
    EXPECT_EQ(writer->bytes(), fs::file_size(path_));
  }
  std::size_t n_headers = 0, n_tokens = 0, n_selections = 0, n_counts = 0;
  const Status read = ReadTraceFile(path_, {.on_header = [&](const TraceHeader& header) -> Status {
                                              ++n_headers;
                                              EXPECT_EQ(header, one.header);
                                              return {};
                                            },
                                            .on_tokens = [&](const TraceTokens& tokens) -> Status {
                                              ++n_tokens;
                                              EXPECT_EQ(tokens, one.tokens);
                                              return {};
                                            },
                                            .on_selection = [&](const TokenSelection& selection) -> Status {
                                              ExpectSame(one.selections[n_selections++], selection);
                                              return {};
                                            },
                                            .on_counts = [&](const PromptCounts& counts) -> Status {
                                              ExpectSame(one.counts[n_counts++], counts);
                                              return {};
                                            }});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(n_headers, 1u);
  EXPECT_EQ(n_tokens, 1u);
  EXPECT_EQ(n_selections, one.selections.size());
  EXPECT_EQ(n_counts, one.counts.size());
}

TEST_F(TraceFile, HasNoNameBeforeItIsWhole) {
  {
    const TraceCase one = MakeTraceCase(2);
    Result<TraceWriter> writer = TraceWriter::Create(path_, one.header);
    ASSERT_TRUE(writer);
    writer->AddTokens(one.tokens);
  }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(TraceFile, ThatCannotBeMadeIsRefused) {
  const Result<TraceWriter> writer = TraceWriter::Create("/nowhere/at/all/trace", MakeTraceCase(1).header);
  ASSERT_FALSE(writer);
  EXPECT_NE(writer.error().message.find("/nowhere/at/all/trace"), std::string::npos);
}

TEST_F(TraceFile, OnAFullDiskIsASentenceInTheEnd) {
  const TraceCase one = MakeTraceCase(3);
  Result<TraceWriter> writer = TraceWriter::Create("/dev/full", one.header);
  ASSERT_TRUE(writer) << writer.error().message;
  for (int i = 0; i < 200; ++i) writer->AddTokens(one.tokens);
  for (const TokenSelection& selection : one.selections) writer->AddSelection(selection);
  const Status finished = writer->Finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().kind, ErrorKind::kIo);
  EXPECT_NE(finished.error().message.find("/dev/full"), std::string::npos);
}

TEST_F(TraceFile, ThatMayNotGrowLeavesTheOldOne) {
  std::ofstream(path_) << "old";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const TraceCase one = MakeTraceCase(4);
  Result<TraceWriter> writer = TraceWriter::Create(path_, one.header);
  ASSERT_TRUE(writer);
  for (int i = 0; i < 200; ++i) writer->AddTokens(one.tokens);
  const Status finished = writer->Finish();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(finished);
  std::string content;
  std::ifstream(path_) >> content;
  EXPECT_EQ(content, "old");
}

TEST(DamagedTrace, IsRefusedWhereverItIsCutOff) {
  const std::string whole = TraceBytes(MakeTraceCase(5));
  ASSERT_TRUE(ReadTrace(whole, "whole", {}));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<char> prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const Status read = ReadTrace({prefix.data(), prefix.size()}, "dir/t.trace", {});
    ASSERT_FALSE(read) << size;
    ASSERT_TRUE(read.error().message.starts_with("dir/t.trace: ")) << read.error().message;
  }
}

TEST(DamagedTrace, IsRefusedWithAnyByteFlipped) {
  const std::string whole = TraceBytes(MakeTraceCase(6));
  std::mt19937 random(1);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random() % 255));
    ASSERT_FALSE(ReadTrace(damaged, "damaged", {})) << at;
  }
  EXPECT_FALSE(ReadTrace(whole + "x", "longer", {}));
}

// Whose checksums fit, and whose contents do not: what a damaged writer would leave.
TEST(DamagedTrace, ContentsThatContradictThemselvesAreRefused) {
  const TraceCase one = MakeTraceCase(7);
  const int64_t n_rows = one.header.n_layers * one.header.n_heads;
  std::mt19937 random(2);
  const auto flip = [&](const std::string& payload) {
    std::string damaged = payload;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    return damaged.substr(0, random() % 3 == 0 ? random() % damaged.size() : damaged.size());
  };
  std::string selection, counts, tokens;
  EncodeSelection(one.selections[0], selection);
  EncodeCounts(one.counts[0], counts);
  EncodeTokens(one.tokens, tokens);
  for (int i = 0; i < 20000; ++i) {  // no crash, and what is whole is in order
    if (const auto decoded = DecodeSelection(flip(selection), n_rows)) {
      for (const HeadSelection& head : decoded->heads) {
        for (std::size_t r = 1; r < head.seen.size(); ++r) {
          ASSERT_LE(head.seen[r - 1].end, head.seen[r].begin);
          ASSERT_LE(head.seen[r].begin, head.seen[r].end);
        }
        for (std::size_t t = 1; t < head.taken.size(); ++t) {
          ASSERT_LT(head.taken[t - 1].block, head.taken[t].block);
        }
      }
    }
    if (const auto decoded = DecodeTokens(flip(tokens))) {
      ASSERT_EQ(decoded->ids.size(), decoded->ends.size());
      ASSERT_TRUE(std::ranges::is_sorted(decoded->ends));
    }
    DecodeCounts(flip(counts), n_rows);
  }
  EXPECT_FALSE(DecodeSelection(selection + '\0', n_rows));
  EXPECT_FALSE(DecodeSelection(selection, n_rows + 1));
  EXPECT_FALSE(DecodeSelection(selection, n_rows - 1));
}

// A row that repeats the one before it takes a byte: rows without end are no way to take all memory.
TEST(DamagedTrace, RepeatedRowsAreBounded) {
  TokenSelection selection{.position = 1, .phase = Phase::kDecode, .heads = {}};
  selection.heads.resize(1);
  for (int64_t i = 0; i < 100000; ++i) selection.heads[0].seen.push_back({2 * i, 2 * i + 1});
  std::string payload;
  EncodeSelection(selection, payload);
  payload.append(std::size_t{1} << 20, '\x01');
  EXPECT_FALSE(DecodeSelection(payload, (int64_t{1} << 20) + 1));
}

TEST(TraceHeader, RefusesWhatNoModelHas) {
  const TraceHeader good = MakeTraceCase(8).header;
  const Result<TraceHeader> parsed = ParseTraceHeader(TraceHeaderJson(good));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, good);
  const auto refused = [&](const auto& change) {
    TraceHeader bad = good;
    change(bad);
    return !ParseTraceHeader(TraceHeaderJson(bad)).has_value();
  };
  EXPECT_TRUE(refused([](TraceHeader& h) { h.n_layers = 0; }));
  EXPECT_TRUE(refused([](TraceHeader& h) { h.n_heads = -1; }));
  EXPECT_TRUE(refused([](TraceHeader& h) { h.n_layers = h.n_heads = int64_t{1} << 40; }));
  EXPECT_TRUE(refused([](TraceHeader& h) { h.columns.tokens = 0; }));
  EXPECT_TRUE(refused([](TraceHeader& h) { h.blocks = BlockGrid{.first = -1, .tokens = 4}; }));
  EXPECT_TRUE(refused([](TraceHeader& h) { h.needle = TextRange{.begin = 3, .end = 2}; }));
  EXPECT_FALSE(ParseTraceHeader("{}"));
  EXPECT_FALSE(ParseTraceHeader("[1,"));
  EXPECT_FALSE(ParseTraceHeader(""));
}

// What LongHeads sees on the default model: the first chunk, the one before the token's own, its own, and 13
// that it chooses.
constexpr int64_t kLayers = 30, kHeads = 9, kChunk = 256;
constexpr std::size_t kChosen = 13;

HeadSelection LongHeadsSelection(int64_t position, std::mt19937& random) {
  const auto own = static_cast<int32_t>(position / kChunk);
  std::vector<int32_t> chunks(static_cast<std::size_t>(own - 2));
  std::iota(chunks.begin(), chunks.end(), 1);
  std::ranges::shuffle(chunks, random);
  chunks.resize(kChosen);
  std::ranges::sort(chunks);
  HeadSelection head;
  for (const int32_t chunk : chunks) {
    head.taken.push_back({chunk, static_cast<float>(random() % 1000) * 0.037f});
  }
  chunks.insert(chunks.begin(), 0);
  chunks.push_back(own - 1);
  for (const int32_t chunk : chunks) {
    if (head.seen.empty() || head.seen.back().end < chunk * kChunk) {
      head.seen.push_back({chunk * kChunk, chunk * kChunk});
    }
    head.seen.back().end += kChunk;
  }
  head.seen.back().end = position + 1;
  return head;
}

class TraceSize : public TraceFile {};

TEST_F(TraceSize, OfLongHeadsOverALongText) {
  constexpr int64_t kPrompt = 32768, kAnswer = 100;
  TraceHeader header = MakeTraceCase(9).header;
  header.n_layers = kLayers;
  header.n_heads = kHeads;
  header.n_kv_heads = 3;
  header.prompt_tokens = kPrompt;
  std::mt19937 random(3);
  const auto text = [&](int64_t n) {
    TraceTokens tokens;
    for (int64_t i = 0; i < n; ++i) tokens.Add(static_cast<int32_t>(random() % 49152), "word ");
    return tokens;
  };
  Result<TraceWriter> writer = TraceWriter::Create(path_, header);
  ASSERT_TRUE(writer) << writer.error().message;
  writer->AddTokens(text(kPrompt));
  for (int64_t position = kPrompt - 1; position < kPrompt + kAnswer - 1; ++position) {
    TokenSelection selection{
        .position = position, .phase = position < kPrompt ? Phase::kPrefill : Phase::kDecode, .heads = {}};
    for (int64_t row = 0; row < kLayers * kHeads; ++row) {
      selection.heads.push_back(LongHeadsSelection(position, random));
    }
    writer->AddSelection(selection);
  }
  writer->AddTokens(text(kAnswer));
  ASSERT_TRUE(writer->Finish());

  const uint64_t size = fs::file_size(path_);
  EXPECT_EQ(size, writer->bytes());
  // A chunk that was chosen is at least a byte and its score.
  EXPECT_GT(size, kAnswer * kLayers * kHeads * kChosen * 5);
  EXPECT_LT(size, 4'000'000U);  // docs/trace.md: 3.2 MB
  int64_t n_tokens = 0, n_selections = 0, n_taken = 0;
  const Status read = ReadTraceFile(path_, {.on_tokens = [&](const TraceTokens& tokens) -> Status {
                                              n_tokens += static_cast<int64_t>(tokens.ids.size());
                                              return {};
                                            },
                                            .on_selection = [&](const TokenSelection& selection) -> Status {
                                              ++n_selections;
                                              for (const HeadSelection& head : selection.heads) {
                                                n_taken += static_cast<int64_t>(head.taken.size());
                                              }
                                              return {};
                                            }});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(n_tokens, kPrompt + kAnswer);
  EXPECT_EQ(n_selections, kAnswer);
  EXPECT_EQ(n_taken, kAnswer * kLayers * kHeads * static_cast<int64_t>(kChosen));
}

}  // namespace
}  // namespace longheads
