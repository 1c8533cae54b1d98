#include "eval/passkey_journal.h"

#include <gtest/gtest.h>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

PasskeyRecord Example(const std::string& attention, int64_t length, bool correct) {
  return {.setup = {.model = ExampleModelSetup(),
                    .style = {.form = PromptForm::kChat, .filler = PasskeyFiller::kLine},
                    .max_tokens = 32,
                    .seed = 3},
          .attention = attention,
          .which = {.length = length, .depth_ppm = 166667, .repeat = 1},
          .key = 36695,
          .tokens = length - 2,
          .shared = 100,
          .answer = "The \"pass\" key\nis 36695.",
          .correct = correct,
          .digits_right = correct ? 5 : 2,
          .digits = 5,
          .seconds = 1.25,
          .by = ExampleProvenance()};
}

TEST(PasskeyJournal, RecordsComeBackAsTheyWereWritten) {
  PasskeyRecord record = Example("longheads,chunk=128", 4096, true);
  record.setup.model.model = "tiny.gguf";
  const auto back = ParsePasskeyJson(PasskeyJson(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(back->SameCase(record.setup, record.attention, record.which));
  EXPECT_EQ(PasskeyJson(*back), PasskeyJson(record));
}

TEST(PasskeyJournal, AnythingElseOfTheSetupIsAnotherCase) {
  const PasskeyRecord record = Example("full", 4096, true);
  PasskeySetup other = record.setup;
  other.seed = 4;
  EXPECT_FALSE(record.SameCase(other, "full", record.which));
  other = record.setup;
  other.style.filler = PasskeyFiller::kLines;
  EXPECT_FALSE(record.SameCase(other, "full", record.which));
  other = record.setup;
  other.model.rope = "";
  EXPECT_FALSE(record.SameCase(other, "full", record.which));
  EXPECT_FALSE(record.SameCase(record.setup, "auto", record.which));
  EXPECT_TRUE(record.SameCase(record.setup, "full", record.which));
}

TEST(PasskeyJournal, LinesHaveTheFingerprintOfTheirConfiguration) {
  const PasskeyRecord record = Example("full", 4096, true);
  const auto same = [&](auto change) {
    PasskeyRecord changed = record;
    change(changed);
    return changed.Fingerprint() == record.Fingerprint();
  };
  EXPECT_TRUE(same([](PasskeyRecord& r) { r.which.length = 8192; }));
  EXPECT_TRUE(same([](PasskeyRecord& r) { r.by.threads = 7; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.attention = "auto"; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.setup.seed = 4; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.setup.max_tokens = 5; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.setup.style.form = PromptForm::kPlain; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.setup.style.filler = PasskeyFiller::kLines; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.setup.model.esa_compression = "0123456789abcdef"; }));
  EXPECT_FALSE(same([](PasskeyRecord& r) { r.setup.model.fingerprint = "fedcba9876543210"; }));

  const std::string line = PasskeyJson(record);
  EXPECT_NE(line.find("\"fingerprint\":\"" + record.Fingerprint() + "\""), std::string::npos) << line;
  std::string other_seed = line;
  other_seed.replace(other_seed.find("\"seed\":3"), 8, "\"seed\":4");
  const auto refused = ParsePasskeyJson(other_seed);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("fingerprint"), std::string::npos) << refused.error().message;
}

TEST(PasskeyJournal, LineOfAnOlderProgramHasNoFingerprintAndIsReadAllTheSame) {
  const PasskeyRecord record = Example("full", 4096, true);
  const std::string line = PasskeyJson(record);
  const std::string older = line.substr(0, line.find(",\"fingerprint\"")) + "}";
  const auto back = ParsePasskeyJson(older);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->Fingerprint(), ParsePasskeyJson(line)->Fingerprint());
  EXPECT_EQ(PasskeyJson(*back), line);
}

TEST(PasskeyJournal, EachShardHasAFileOfItsOwn) {
  const TestDirectory directory;
  for (const Shard shard : {Shard{1, 2}, Shard{2, 2}, Shard{1, 1}}) {
    auto journal = OpenPasskeyShard(directory.File("out"), shard);
    ASSERT_TRUE(journal && journal->Append(Example("full", 4096, true)));
    ASSERT_TRUE(journal->WriteSummary());
    EXPECT_EQ(journal->records().size(), 1u);
  }
  for (const std::string name : {"passkey-1of2", "passkey-2of2", "passkey"}) {
    EXPECT_TRUE(std::filesystem::exists(directory.File("out/" + name + ".jsonl"))) << name;
    EXPECT_TRUE(std::filesystem::exists(directory.File("out/" + name + ".csv"))) << name;
  }
}

TEST(PasskeyJournal, LaterRunFindsTheRecordsOfAnEarlierOne) {
  const TestDirectory directory;
  const std::string out = directory.File("new/out");
  {
    auto journal = OpenPasskeyJournal(out);
    ASSERT_TRUE(journal) << journal.error().message;
    EXPECT_TRUE(journal->Append(Example("full", 4096, true)));
    EXPECT_TRUE(journal->Append(Example("full", 8192, false)));
  }
  const auto journal = OpenPasskeyJournal(out);
  ASSERT_TRUE(journal) << journal.error().message;
  ASSERT_EQ(journal->records().size(), 2u);
  EXPECT_EQ(journal->records()[1].which.length, 8192);
}

TEST(PasskeyJournal, HalfWrittenLastLineIsCutOff) {
  const TestDirectory directory;
  {
    auto journal = OpenPasskeyJournal(directory.File("out"));
    ASSERT_TRUE(journal && journal->Append(Example("full", 4096, true)));
  }
  const std::string path = directory.File("out/passkey.jsonl");
  const std::string whole = ReadAll(path);
  AppendText(path, whole.substr(0, whole.size() / 2));
  {
    auto journal = OpenPasskeyJournal(directory.File("out"));
    ASSERT_TRUE(journal) << journal.error().message;
    EXPECT_EQ(journal->records().size(), 1u);
    EXPECT_EQ(ReadAll(path), whole);
    ASSERT_TRUE(journal->Append(Example("full", 8192, true)));
  }
  const auto journal = OpenPasskeyJournal(directory.File("out"));
  ASSERT_TRUE(journal) << journal.error().message;
  EXPECT_EQ(journal->records().size(), 2u);
}

TEST(PasskeyJournal, LineThatIsNoCaseIsNamed) {
  for (const std::string line : {"not json", "{}", "[1]", "{\"attn\": 3}", ""}) {
    const TestDirectory directory;
    {
      auto journal = OpenPasskeyJournal(directory.File("out"));
      ASSERT_TRUE(journal && journal->Append(Example("full", 4096, true)));
    }
    AppendText(directory.File("out/passkey.jsonl"), line + "\n");
    const auto journal = OpenPasskeyJournal(directory.File("out"));
    ASSERT_FALSE(journal) << line;
    EXPECT_EQ(journal.error().kind, ErrorKind::kInvalidInput);
    EXPECT_TRUE(journal.error().message.starts_with("line 2 of ")) << journal.error().message;
  }
}

TEST(PasskeyJournal, FullDiskIsAnErrorThatSaysSo) {
  const TestDirectory directory;
  const std::string out = directory.File("out");
  std::filesystem::create_directories(out);
  std::filesystem::create_symlink("/dev/full", out + "/passkey.jsonl");
  auto journal = OpenPasskeyJournal(out);
  ASSERT_TRUE(journal) << journal.error().message;
  const Status status = journal->Append(Example("full", 4096, true));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kIo);
  EXPECT_NE(status.error().message.find("No space left on device"), std::string::npos)
      << status.error().message;
  EXPECT_TRUE(journal->records().empty());
}

TEST(PasskeyJournal, TwoRunsDoNotShareADirectory) {
  const TestDirectory directory;
  {
    const auto first = OpenPasskeyJournal(directory.File("out"));
    ASSERT_TRUE(first);
    const auto second = OpenPasskeyJournal(directory.File("out"));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorKind::kIo);
    EXPECT_NE(second.error().message.find("another run"), std::string::npos) << second.error().message;
  }
  EXPECT_TRUE(OpenPasskeyJournal(directory.File("out")));
}

TEST(PasskeyJournal, DirectoryThatCannotBeMadeIsAnError) {
  const TestDirectory directory;
  AppendText(directory.File("file"), "x");
  for (const std::string path : {"file", "file/below"}) {
    const auto journal = OpenPasskeyJournal(directory.File(path));
    ASSERT_FALSE(journal);
    EXPECT_EQ(journal.error().kind, ErrorKind::kIo);
  }
}

TEST(PasskeyJournal, SummaryHasTotalsByMethodAndLength) {
  const TestDirectory directory;
  auto journal = OpenPasskeyJournal(directory.File("out"));
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->Append(Example("longheads,chunk=128", 4096, true)));
  ASSERT_TRUE(journal->Append(Example("full", 4096, false)));
  ASSERT_TRUE(journal->Append(Example("longheads,chunk=128", 4096, false)));
  ASSERT_TRUE(journal->WriteSummary());
  const std::string csv = ReadAll(directory.File("out/passkey.csv"));
  EXPECT_TRUE(
      csv.starts_with("attn,length,cases,correct,digits_right,digits,mean_tokens,mean_shared,seconds,model"));
  EXPECT_NE(
      csv.find("\n\"longheads,chunk=128\",4096,2,1,7,10,4094.0,100.0,2.500,\"a,b\xff.gguf\",chat,line,bf16,"),
      std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\nfull,4096,1,0,2,5,"), std::string::npos) << csv;
}

PasskeyRecord FailedExample(const std::string& attention, int64_t length) {
  PasskeyRecord record = Example(attention, length, false);
  record.answer = "";
  record.digits_right = record.digits = 0;
  record.failed = "out of memory";
  return record;
}

TEST(PasskeyJournal, FailedCaseHasAReasonAndNoAnswer) {
  const PasskeyRecord record = FailedExample("full", 4096);
  const std::string line = PasskeyJson(record);
  EXPECT_EQ(line.find("\"correct\""), std::string::npos) << line;
  const auto back = ParsePasskeyJson(line);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->failed, "out of memory");
  EXPECT_EQ(PasskeyJson(*back), line);
  std::string nameless = line;
  nameless.replace(nameless.find("out of memory"), 13, "");
  EXPECT_FALSE(ParsePasskeyJson(nameless));
}

TEST(PasskeyJournal, SummaryCountsFailedCasesBesideTheOthersUntilTheyAreRunAgain) {
  std::vector<PasskeyRecord> records = {FailedExample("full", 4096), Example("full", 4096, true),
                                        FailedExample("full", 8192)};
  records[0].which.repeat = 7;
  const std::string before = PasskeyCsv(records);
  EXPECT_NE(before.find("\nfull,4096,1,1,5,5,4094.0,100.0,1.250,"), std::string::npos) << before;
  EXPECT_NE(before.find("\nfull,8192,0,0,0,0,0.0,0.0,0.000,"), std::string::npos) << before;
  EXPECT_NE(before.find(",1\nfull,8192"), std::string::npos) << before;
  records.push_back(Example("full", 4096, false));
  records.back().which.repeat = 7;
  const std::string after = PasskeyCsv(records);
  EXPECT_NE(after.find("\nfull,4096,2,1,7,10,"), std::string::npos) << after;
  EXPECT_NE(after.find(",0\nfull,8192"), std::string::npos) << after;
}

TEST(PasskeyTable, FailedCasesStandBesideTheOthers) {
  const std::vector<PasskeyRecord> records = {Example("full", 1000, true), FailedExample("full", 1000),
                                              FailedExample("full", 4096)};
  const std::vector<std::string> attention = {"full"};
  const std::vector<int64_t> lengths = {1000, 4096};
  EXPECT_EQ(PasskeyTable(records, attention, lengths),
            "attn                            1000        4k\n"
            "full  1/1 free, 5/5 digits, 1 failed  1 failed\n");
}

TEST(PasskeyTable, HasMethodsAsRowsAndLengthsAsColumns) {
  const std::vector<PasskeyRecord> records = {Example("full", 4096, true), Example("full", 4096, false),
                                              Example("auto", 1000, true)};
  const std::vector<std::string> attention = {"full", "auto"};
  const std::vector<int64_t> lengths = {1000, 4096};
  EXPECT_EQ(PasskeyTable(records, attention, lengths),
            "attn                  1000                     4k\n"
            "full                     -  1/2 free, 7/10 digits\n"
            "auto  1/1 free, 5/5 digits                      -\n");
}

}  // namespace
}  // namespace longheads
