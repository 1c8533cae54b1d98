#include "eval/ppl_journal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

PplRecord Example(const std::string& attention, int64_t length, int64_t offset) {
  return {.setup = {.model = ExampleModelSetup(),
                    .text = "a \"book\".txt",
                    .text_bytes = 123456,
                    .text_hash = TextHash("text")},
          .attention = attention,
          .which = {.length = length, .sample = offset / 100, .offset = offset, .calls = {500, length - 4}},
          .score = {.n_tokens = 4, .nll_sum = 12.1, .nll_squares = 50.0 / 3},
          .seconds = 1.25,
          .by = ExampleProvenance()};
}

TEST(TextHash, IsFnv1a) {
  EXPECT_EQ(TextHash(""), "cbf29ce484222325");
  EXPECT_EQ(TextHash("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(TextHash("foobar"), "85944171f73967e8");
}

TEST(PplJournal, RecordsComeBackAsTheyWereWritten) {
  PplRecord record = Example("longheads,chunk=128", 4096, 100);
  record.setup.model.model = "tiny.gguf";
  const auto back = ParsePplJson(PplJson(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(back->SameCase(record.setup, record.attention, record.which));
  EXPECT_EQ(back->score.nll_sum, record.score.nll_sum);  // to the last bit
  EXPECT_EQ(back->score.nll_squares, record.score.nll_squares);
  EXPECT_EQ(PplJson(*back), PplJson(record));
}

TEST(PplJournal, WhatBearsOnAResultMakesAnotherCase) {
  const PplRecord record = Example("full", 4096, 100);
  const auto other = [&](auto change) {
    PplRecord changed = record;
    change(changed);
    return !record.SameCase(changed.setup, changed.attention, changed.which);
  };
  EXPECT_TRUE(other([](PplRecord& r) { r.attention = "auto"; }));
  EXPECT_TRUE(other([](PplRecord& r) { r.which.length += 1; }));
  EXPECT_TRUE(other([](PplRecord& r) { r.which.offset += 1; }));
  EXPECT_TRUE(other([](PplRecord& r) { r.which.calls = {4092}; }));
  EXPECT_TRUE(other([](PplRecord& r) { r.which.calls = {500, 4090}; }));
  EXPECT_TRUE(other([](PplRecord& r) { r.setup.model.compute = "f32"; }));
  EXPECT_TRUE(other([](PplRecord& r) { r.setup.text_hash = TextHash("other"); }));
  EXPECT_FALSE(other([](PplRecord& r) { r.which.sample = 7; }));  // a label
  EXPECT_FALSE(other([](PplRecord& r) { r.by.threads = 7; }));
}

TEST(PplJournal, LinesHaveTheFingerprintOfTheirConfiguration) {
  const PplRecord record = Example("full", 4096, 100);
  const auto same = [&](auto change) {
    PplRecord changed = record;
    change(changed);
    return changed.Fingerprint() == record.Fingerprint();
  };
  EXPECT_TRUE(same([](PplRecord& r) { r.which.offset += 1; }));
  EXPECT_TRUE(same([](PplRecord& r) { r.which.calls = {600, 4092}; }));
  EXPECT_FALSE(same([](PplRecord& r) { r.which.calls = {500, 4090}; }));  // more is scored
  EXPECT_FALSE(same([](PplRecord& r) { r.attention = "auto"; }));
  EXPECT_FALSE(same([](PplRecord& r) { r.setup.text_hash = TextHash("other"); }));
  EXPECT_FALSE(same([](PplRecord& r) { r.setup.model.kv = "q8"; }));
  EXPECT_FALSE(same([](PplRecord& r) { r.setup.model.esa_compression = "0123456789abcdef"; }));

  const std::string line = PplJson(record);
  EXPECT_NE(line.find("\"fingerprint\":\"" + record.Fingerprint() + "\""), std::string::npos) << line;
  std::string other_kv = line;
  other_kv.replace(other_kv.find("\"kv\":\"bf16\""), 11, "\"kv\":\"q8\"");
  const auto refused = ParsePplJson(other_kv);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("fingerprint"), std::string::npos) << refused.error().message;

  const auto older = ParsePplJson(line.substr(0, line.find(",\"fingerprint\"")) + "}");
  ASSERT_TRUE(older) << older.error().message;
  EXPECT_EQ(PplJson(*older), line);
}

PplRecord FailedExample(const std::string& attention, int64_t length, int64_t offset) {
  PplRecord record = Example(attention, length, offset);
  record.score = {};
  record.failed = "out of memory";
  return record;
}

TEST(PplJournal, FailedCaseHasAReasonAndNoScore) {
  const std::string line = PplJson(FailedExample("full", 4096, 0));
  for (const char* const name : {"\"ppl\"", "\"tokens\"", "\"nll_sum\""}) {
    EXPECT_EQ(line.find(name), std::string::npos) << line;
  }
  const auto back = ParsePplJson(line);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->failed, "out of memory");
  EXPECT_EQ(back->score.n_tokens, 0);
  EXPECT_EQ(PplJson(*back), line);
  std::string nameless = line;
  nameless.replace(nameless.find("out of memory"), 13, "");
  EXPECT_FALSE(ParsePplJson(nameless));
}

TEST(PplJournal, SummaryCountsFailedCasesBesideTheOthersUntilTheyAreRunAgain) {
  std::vector<PplRecord> records = {FailedExample("full", 4096, 100), Example("full", 4096, 0),
                                    FailedExample("full", 8192, 0)};
  const std::string before = PplCsv(records);
  EXPECT_NE(before.find("\nfull,4096,1,4,3.025000,"), std::string::npos) << before;
  EXPECT_NE(before.find(",0123456789abcdef,1\nfull,8192,0,0,,,,,,0.000,500 8188,"), std::string::npos)
      << before;
  records.push_back(Example("full", 4096, 100));
  const std::string after = PplCsv(records);
  EXPECT_NE(after.find("\nfull,4096,2,8,3.025000,"), std::string::npos) << after;
  EXPECT_NE(after.find(",0123456789abcdef,0\nfull,8192,"), std::string::npos) << after;
}

TEST(PplTable, FailedCasesStandBesideTheOthers) {
  PplRecord even = Example("full", 1000, 0);
  even.score = {.n_tokens = 4, .nll_sum = 4 * std::log(2), .nll_squares = 4 * std::log(2) * std::log(2)};
  const std::vector<PplRecord> records = {even, FailedExample("full", 1000, 100),
                                          FailedExample("full", 4096, 0)};
  const std::vector<std::string> attention = {"full"};
  const std::vector<int64_t> lengths = {1000, 4096};
  EXPECT_EQ(PplTable(records, attention, lengths),
            "attn                        1000        4k\n"
            "full  2.00 (2.00-2.00), 1 failed  1 failed\n");
}

TEST(PplJournal, LineThatIsNoCaseIsNamed) {
  PplRecord wrong = Example("full", 4096, 0);
  wrong.score.n_tokens = 5;
  PplRecord unread = Example("full", 400, 0);  // its calls go beyond it
  std::string without_calls = PplJson(Example("full", 4096, 0));
  without_calls.replace(without_calls.find("[500,4092]"), 10, "[]");
  for (const std::string& line : {std::string("not json"), std::string("{}"), std::string(), PplJson(wrong),
                                  PplJson(unread), without_calls}) {
    const TestDirectory directory;
    {
      auto journal = OpenPplJournal(directory.File("out"));
      ASSERT_TRUE(journal && journal->Append(Example("full", 4096, 0)));
    }
    AppendText(directory.File("out/ppl.jsonl"), line + "\n");
    const auto journal = OpenPplJournal(directory.File("out"));
    ASSERT_FALSE(journal) << line;
    EXPECT_EQ(journal.error().kind, ErrorKind::kInvalidInput);
    EXPECT_TRUE(journal.error().message.starts_with("line 2 of ")) << journal.error().message;
  }
}

TEST(PplJournal, HalfWrittenLastLineIsCutOff) {
  const TestDirectory directory;
  {
    auto journal = OpenPplJournal(directory.File("out"));
    ASSERT_TRUE(journal && journal->Append(Example("full", 4096, 0)));
  }
  const std::string path = directory.File("out/ppl.jsonl");
  const std::string whole = ReadAll(path);
  AppendText(path, whole.substr(0, whole.size() / 2));
  const auto journal = OpenPplJournal(directory.File("out"));
  ASSERT_TRUE(journal) << journal.error().message;
  EXPECT_EQ(journal->records().size(), 1u);
  EXPECT_EQ(ReadAll(path), whole);
}

TEST(PplJournal, SummaryHasTotalsByMethodAndLength) {
  const TestDirectory directory;
  auto journal = OpenPplJournal(directory.File("out"));
  ASSERT_TRUE(journal);
  PplRecord same = Example("longheads,chunk=128", 4096, 100);
  same.score = {.n_tokens = 4, .nll_sum = 11.9, .nll_squares = 70.0 - 50.0 / 3};
  ASSERT_TRUE(journal->Append(Example("longheads,chunk=128", 4096, 0)));
  ASSERT_TRUE(journal->Append(Example("full", 4096, 0)));
  ASSERT_TRUE(journal->Append(same));
  PplRecord other_calls = same;
  other_calls.which.calls = {4092};
  ASSERT_TRUE(journal->Append(other_calls));
  ASSERT_TRUE(journal->WriteSummary());
  const std::string csv = ReadAll(directory.File("out/ppl.csv"));
  EXPECT_TRUE(csv.starts_with(
      "attn,length,samples,tokens,mean_nll,standard_error,ppl,ppl_low,ppl_high,seconds,calls,text"));
  // Sum 24 and squares 70 over 8 tokens: no deviation from 3 but rounding would be 72, so the variance is 0.
  EXPECT_NE(csv.find("\n\"longheads,chunk=128\",4096,2,8,3.000000,0.000000,20.0855,20.0855,20.0855,2.500,"
                     "500 4092,\"a \"\"book\"\".txt\",123456,"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\nfull,4096,1,4,3.025000,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\n\"longheads,chunk=128\",4096,1,4,2.975000,"), std::string::npos) << csv;
}

TEST(PplTable, HasMethodsAsRowsAndLengthsAsColumns) {
  PplRecord even = Example("full", 4096, 0);
  even.score = {.n_tokens = 4, .nll_sum = 4 * std::log(2), .nll_squares = 4 * std::log(2) * std::log(2)};
  PplRecord broken = Example("auto", 1000, 0);
  broken.score = {.n_tokens = 4, .nll_sum = 4 * std::log(12345), .nll_squares = 0};
  const std::vector<PplRecord> records = {even, even, broken};
  const std::vector<std::string> attention = {"full", "auto"};
  const std::vector<int64_t> lengths = {1000, 4096};
  EXPECT_EQ(PplTable(records, attention, lengths),
            "attn                 1000                4k\n"
            "full                    -  2.00 (2.00-2.00)\n"
            "auto  12345 (12345-12345)                 -\n");
}

}  // namespace
}  // namespace longheads
