#include "eval/ppl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>

#include "eval/tiny_engine_for_test.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

// Words that do not repeat in any simple way.
std::string Text(int n_words) {
  std::string text;
  uint32_t state = 1;
  for (int i = 0; i < n_words; ++i) {
    state = state * 1664525 + 1013904223;
    text += std::to_string(state >> 20);
    text += i % 9 == 8 ? ".\n" : " ";
  }
  return text;
}

// A model to which this byte is no number: behind it no logits are finite.
std::vector<std::byte> ModelThatTrips(char byte) {
  constexpr int64_t kEmbed = 64;
  std::vector<std::byte> model = TinyLlama({.embed = kEmbed, .tied = false, .seed = 7});
  const auto row = static_cast<std::ptrdiff_t>(byte) * kEmbed;
  const std::vector<float> all = TinyLlamaValues(7, "token_embd.weight", row + kEmbed, /*columns=*/kEmbed);
  const auto bytes = std::as_bytes(std::span(all).subspan(static_cast<std::size_t>(row)));
  const auto at = std::search(model.begin(), model.end(), bytes.begin(), bytes.end());
  EXPECT_NE(at, model.end());
  const std::vector<float> nothing(static_cast<std::size_t>(kEmbed), std::numeric_limits<float>::quiet_NaN());
  std::ranges::copy(std::as_bytes(std::span(nothing)), at);
  return model;
}

class PplTest : public testing::Test {
 protected:
  PplOptions Options() const {
    PplOptions options;
    options.attention = {"full"};
    options.lengths = {200, 100};
    options.n_samples = 2;
    options.n_score = 30;
    options.text = text_;
    options.text_name = "text.txt";
    return options;
  }

  PplHooks Hooks() {
    return {.load = [this](const std::string& attention) { return LoadTiny(model_, attention); },
            .on_text = [this](int64_t n_tokens, std::size_t) { n_text_ = n_tokens; },
            .on_method = {},
            .on_work =
                [this](const std::string&, const PplCase&, bool scoring, int64_t n) {
                  (scoring ? n_scored_ : n_read_) += n;
                  return std::function<void(double)>();
                },
            .on_case =
                [this](const PplRecord&, bool from_file, int64_t done, int64_t n_cases) {
                  (from_file ? n_found_ : n_run_) += 1;
                  n_cases_ = n_cases;
                  if (done == cancel_after_) cancel_.Cancel();
                },
            .cancel = &cancel_};
  }

  std::vector<PplRecord> RunAll(const PplOptions& options) {
    n_found_ = n_run_ = 0;
    n_read_ = n_scored_ = 0;
    std::vector<PplRecord> records;
    const Status status = RunPpl(options, Hooks(), records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  }

  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
  std::string text_ = Text(300);
  CancelToken cancel_;
  int64_t cancel_after_ = -1;
  int n_found_ = 0, n_run_ = 0;
  int64_t n_text_ = 0, n_read_ = 0, n_scored_ = 0, n_cases_ = 0;
};

TEST_F(PplTest, ReadsEachSampleOnceForAllItsLengths) {
  PplOptions options = Options();
  options.attention = {"full", "longheads,chunk=16,window=64,begin=64", "full"};
  options.lengths = {200, 100, 200};
  const std::vector<PplRecord> records = RunAll(options);
  ASSERT_EQ(records.size(), 2u * 2 * 2);
  EXPECT_EQ(n_cases_, 8);
  EXPECT_EQ(n_read_, 2 * 2 * (200 - 30));
  EXPECT_EQ(n_scored_, 8 * 30);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const PplRecord& r = records[i];
    EXPECT_EQ(r.attention, options.attention[i / 4]);
    EXPECT_EQ(r.which.sample, static_cast<int64_t>(i / 2 % 2));
    EXPECT_EQ(r.which.offset, i / 2 % 2 == 0 ? 0 : n_text_ / 2);
    EXPECT_EQ(r.which.length, i % 2 == 0 ? 100 : 200);
    EXPECT_EQ(r.which.calls, i % 2 == 0 ? std::vector<int64_t>{70} : (std::vector<int64_t>{70, 170}));
    EXPECT_EQ(r.score.n_tokens, 30);
    EXPECT_GT(r.score.perplexity(), 1);
    EXPECT_EQ(r.setup.text_bytes, static_cast<int64_t>(text_.size()));
  }
}

// What is scored is what stands in the text, counted from the sample's first token.
TEST_F(PplTest, SampleIsThePieceOfTheTextThatItsRecordNames) {
  const std::vector<PplRecord> records = RunAll(Options());
  const auto engine = TinyEngine(directory_, "full");
  ASSERT_TRUE(engine);
  const auto tokens = engine->tokenizer().Encode(text_, {});
  ASSERT_TRUE(tokens);
  for (const PplRecord& r : records) {
    PplSample sample(*engine, std::span(*tokens).subspan(static_cast<std::size_t>(r.which.offset),
                                                         static_cast<std::size_t>(r.which.length)));
    ASSERT_TRUE(sample.ReadTo(r.which.length - 30, nullptr, {}));
    const auto score = sample.Score(30, nullptr, {});
    ASSERT_TRUE(score);
    EXPECT_EQ(score->nll_sum, r.score.nll_sum);
  }
}

// Keys under the rotation of one length are of no use for another.
TEST_F(PplTest, MethodThatFollowsTheLengthReadsASampleAnewForEach) {
  PplOptions options = Options();
  options.text = Text(1000);
  options.attention = {"dynamic-ntk:factor=1+full"};
  options.lengths = {100, 1024};
  const std::vector<PplRecord> records = RunAll(options);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(n_read_, 2 * (100 - 30 + 1024 - 30));
  EXPECT_EQ(records[1].which.calls, (std::vector<int64_t>{1024 - 30}));
  options.attention = {"ntk:factor=2+full"};  // what it stands for at twice the model's 512 tokens
  EXPECT_EQ(RunAll(options)[1].score.perplexity(), records[1].score.perplexity());
  options.attention = {"full"};  // and within them
  EXPECT_EQ(RunAll(options)[0].score.nll_sum, records[0].score.nll_sum);
}

TEST_F(PplTest, BosStandsBeforeEachSampleWhereTheVocabularyAsksForIt) {
  std::vector<std::byte> bytes = TinyLlama({.seed = 7});
  bytes.at(*AfterName(bytes, "tokenizer.ggml.add_bos_token") + sizeof(uint32_t)) = std::byte{1};
  const ModelFile file(bytes);
  model_ = file.path();
  const std::vector<PplRecord> records = RunAll(Options());
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(n_read_, 2 * (200 - 30));  // BOS is one of the length
  const auto engine = LoadTiny(model_, "full");
  ASSERT_TRUE(engine);
  const auto text = (*engine)->tokenizer().Encode(text_, {});
  ASSERT_TRUE(text);
  std::vector<TokenId> tokens = {(*engine)->tokenizer().vocabulary().bos};
  tokens.insert(tokens.end(), text->begin(), text->begin() + 99);
  PplSample sample(**engine, tokens);
  ASSERT_TRUE(sample.ReadTo(70, nullptr, {}));
  const auto score = sample.Score(30, nullptr, {});
  ASSERT_TRUE(score);
  EXPECT_EQ(records[0].score.nll_sum, score->nll_sum);
}

TEST_F(PplTest, CasesInTheFileAreNotRunAgain) {
  PplOptions options = Options();
  options.out_dir = directory_.File("out");
  const std::vector<PplRecord> first = RunAll(options);
  EXPECT_EQ(n_run_, 4);
  EXPECT_TRUE(std::filesystem::exists(directory_.File("out/ppl.csv")));
  const std::vector<PplRecord> again = RunAll(options);
  EXPECT_EQ(n_found_, 4);
  EXPECT_EQ(n_read_, 0);
  ASSERT_EQ(again.size(), first.size());
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(PplJson(again[i]), PplJson(first[i]));
  // A longer length goes on with the same samples, and reads them anew; a shorter one cuts their calls.
  options.lengths = {100, 200, 300};
  RunAll(options);
  EXPECT_EQ(n_found_, 4);
  EXPECT_EQ(n_run_, 2);
  EXPECT_EQ(n_read_, 2 * (300 - 30));
  EXPECT_EQ(n_scored_, 2 * 30);
  options.lengths = {200};
  RunAll(options);
  EXPECT_EQ(n_found_, 0);
  options.text += ' ';
  RunAll(options);
  EXPECT_EQ(n_found_, 0);
}

TEST_F(PplTest, JournalOfAnOlderProgramIsContinued) {
  PplOptions options = Options();
  options.out_dir = directory_.File("out");
  const std::vector<PplRecord> first = RunAll(options);
  const std::string path = options.out_dir + "/ppl.jsonl";
  std::ofstream(path, std::ios::trunc).close();
  for (const PplRecord& record : first) {
    const std::string line = PplJson(record);
    AppendText(path, line.substr(0, line.find(",\"fingerprint\"")) + "}\n");
  }
  RunAll(options);
  EXPECT_EQ(n_found_, 4);
  EXPECT_EQ(n_run_, 0);
}

// Bit by bit; the half-written line of the second case is cut off.
TEST_F(PplTest, ResumedRunFindsWhatAWholeOneFinds) {
  for (const std::string attention :
       {"full",
        "infllm,n_init=8,n_local=64,block=16,top_k=2,exec_block=32,representatives=2,max_cached_block=8"}) {
    PplOptions options = Options();
    options.attention = {attention};
    const std::vector<PplRecord> whole = RunAll(options);
    options.out_dir = directory_.File("out-" + attention.substr(0, 4));
    cancel_after_ = 3;
    std::vector<PplRecord> part;
    const Status status = RunPpl(options, Hooks(), part);
    cancel_after_ = -1;
    cancel_.Reset();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
    EXPECT_EQ(part.size(), 3u);
    const std::string path = options.out_dir + "/ppl.jsonl";
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 10);
    const std::vector<PplRecord> resumed = RunAll(options);
    EXPECT_EQ(n_found_, 2);
    EXPECT_EQ(n_run_, 2);
    ASSERT_EQ(resumed.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(resumed[i].which.Same(whole[i].which));
      EXPECT_EQ(resumed[i].score.nll_sum, whole[i].score.nll_sum);
      EXPECT_EQ(resumed[i].score.nll_squares, whole[i].score.nll_squares);
    }
  }
}

TEST_F(PplTest, FailedCaseIsKeptWithItsReasonAndTheOthersGoOn) {
  PplOptions options = Options();
  options.out_dir = directory_.File("out");
  PplHooks hooks = Hooks();
  bool short_of_memory = true;
  hooks.on_work = [&](const std::string&, const PplCase& c, bool scoring, int64_t) {
    if (short_of_memory && scoring && c.sample == 0 && c.length == 100) throw std::bad_alloc();
    return std::function<void(double)>();
  };
  std::vector<PplRecord> records;
  const auto run = [&] {
    records.clear();
    n_found_ = n_run_ = 0;
    return RunPpl(options, hooks, records);
  };
  ASSERT_TRUE(run());
  ASSERT_EQ(records.size(), 4u);
  for (const PplRecord& r : records) {
    const bool fails = r.which.sample == 0 && r.which.length == 100;
    EXPECT_EQ(r.failed, fails ? "out of memory" : "") << r.which.sample << " " << r.which.length;
    EXPECT_EQ(r.score.n_tokens, fails ? 0 : 30);
  }
  short_of_memory = false;
  ASSERT_TRUE(run());
  EXPECT_EQ(n_run_, 0) << "a failed case is done until it is asked for";
  options.retry_failed = true;
  ASSERT_TRUE(run());
  EXPECT_EQ(n_run_, 1);
  EXPECT_EQ(n_found_, 3);
  ASSERT_TRUE(run());
  EXPECT_EQ(n_run_, 0);
  options.out_dir.clear();
  const std::vector<PplRecord> whole = RunAll(options);
  for (const PplRecord& r : records) {
    EXPECT_EQ(r.failed, "");
    const auto same =
        std::ranges::find_if(whole, [&](const PplRecord& other) { return other.which.Same(r.which); });
    ASSERT_NE(same, whole.end());
    EXPECT_EQ(same->score.nll_sum, r.score.nll_sum);
  }
}

// Behind what cannot be read there is no longer case; other samples and other methods go on.
TEST_F(PplTest, SampleThatCannotBeReadOnFailsAtAllItsLongerLengths) {
  PplOptions options = Options();
  options.attention = {"full", "longheads,chunk=16,window=64,begin=64"};
  options.lengths = {100, 200, 250};
  options.out_dir = directory_.File("out");
  PplHooks hooks = Hooks();
  int n_tries = 0;
  bool short_of_memory = true;
  hooks.on_work = [&](const std::string& attention, const PplCase& c, bool scoring, int64_t) {
    if (short_of_memory && !scoring && attention == "full" && c.sample == 0 && c.length >= 200) {
      ++n_tries;
      throw std::bad_alloc();
    }
    return std::function<void(double)>();
  };
  std::vector<PplRecord> records;
  ASSERT_TRUE(RunPpl(options, hooks, records));
  ASSERT_EQ(records.size(), 12u);
  for (const PplRecord& r : records) {
    const bool fails = r.attention == "full" && r.which.sample == 0 && r.which.length >= 200;
    EXPECT_EQ(r.failed, fails ? "out of memory" : "") << r.which.sample << " " << r.which.length;
  }
  EXPECT_EQ(n_tries, 1);
  short_of_memory = false;
  options.retry_failed = true;
  records.clear();
  n_run_ = 0;
  ASSERT_TRUE(RunPpl(options, hooks, records));
  EXPECT_EQ(n_run_, 2);
  for (const PplRecord& r : records) EXPECT_EQ(r.failed, "");
}

TEST_F(PplTest, LogitsThatAreNotFiniteFailTheirCaseAlone) {
  const ModelFile file(ModelThatTrips('Q'));
  model_ = file.path();
  PplOptions options = Options();
  options.text.insert(options.text.size() / 2 + 120, "Q");  // sample 1 begins in the middle
  const std::vector<PplRecord> records = RunAll(options);
  ASSERT_EQ(records.size(), 4u);
  for (const PplRecord& r : records) {
    const bool fails = r.which.sample == 1 && r.which.length == 200;
    EXPECT_EQ(r.failed.find("not finite") != std::string::npos, fails)
        << r.which.sample << " " << r.which.length << " " << r.failed;
    EXPECT_EQ(r.score.n_tokens, fails ? 0 : 30);
  }
}

TEST_F(PplTest, ShardsAreTheWhole) {
  PplOptions options = Options();
  options.n_samples = 3;
  options.out_dir = directory_.File("out");
  const std::vector<PplRecord> whole = RunAll(options);
  std::vector<PplRecord> parts;
  for (const int64_t index : {1, 2}) {
    options.shard = {.index = index, .count = 2};
    const std::vector<PplRecord> part = RunAll(options);
    EXPECT_EQ(n_found_, 0);
    EXPECT_EQ(n_cases_, static_cast<int64_t>(part.size()));
    EXPECT_EQ(part.size(), index == 1 ? 4u : 2u);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  ASSERT_EQ(parts.size(), whole.size());
  for (const PplRecord& record : whole) {
    const auto same =
        std::ranges::find_if(parts, [&](const PplRecord& r) { return r.which.Same(record.which); });
    ASSERT_NE(same, parts.end());
    EXPECT_EQ(same->which.sample, record.which.sample);
    EXPECT_EQ(same->score.nll_sum, record.score.nll_sum);
    EXPECT_EQ(same->Fingerprint(), record.Fingerprint());
  }
  EXPECT_TRUE(std::filesystem::exists(directory_.File("out/ppl-2of2.csv")));
  options.n_samples = 1;  // of which the second part has none
  EXPECT_TRUE(RunAll(options).empty());
}

TEST_F(PplTest, WhoKeepsGoingHasTheCasesOfAMethodThatCannotBeLoadedFail) {
  PplOptions options = Options();
  options.attention = {"landmark", "full"};
  options.out_dir = directory_.File("out");
  std::vector<PplRecord> records;
  ASSERT_FALSE(RunPpl(options, Hooks(), records)) << "a command says it before the first case";
  EXPECT_TRUE(records.empty());
  options.keep_going = true;
  records = RunAll(options);
  ASSERT_EQ(records.size(), 8u);
  for (const PplRecord& r : records) {
    EXPECT_EQ(r.failed.find("<landmark>") != std::string::npos, r.attention == "landmark") << r.failed;
  }
  RunAll(options);
  EXPECT_EQ(n_found_, 8);
  EXPECT_EQ(n_run_, 0);
  options.attention = {"landmark"};  // of which not even a setup is known
  EXPECT_FALSE(RunPpl(options, Hooks(), records));
}

TEST_F(PplTest, TextThatIsTooShortIsRefusedWithWhatItNeeds) {
  PplOptions options = Options();
  RunAll(options);  // n_text_
  options.lengths = {100, n_text_ / 2 + 1};
  std::vector<PplRecord> records;
  const Status status = RunPpl(options, Hooks(), records);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kInvalidInput);
  for (const std::string& part : {std::string("text.txt"), std::to_string(n_text_) + " tokens",
                                  std::to_string(2 * (n_text_ / 2 + 1))}) {
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
  EXPECT_TRUE(records.empty());
  options.lengths = {n_text_ / 2};
  EXPECT_EQ(RunAll(options).size(), 2u);
}

TEST_F(PplTest, ImpossibleOptionsAreRefusedByName) {
  const auto refused = [&](auto change, const std::string& name) {
    PplOptions options = Options();
    change(options);
    std::vector<PplRecord> records;
    const Status status = RunPpl(options, Hooks(), records);
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
    EXPECT_TRUE(records.empty());
  };
  refused([](PplOptions& o) { o.attention.clear(); }, "--attn");
  refused([](PplOptions& o) { o.attention = {"full", "longhead"}; }, "longheads");
  refused([](PplOptions& o) { o.lengths.clear(); }, "--lengths");
  refused([](PplOptions& o) { o.lengths = {100, 30}; }, "--lengths has 30");
  refused([](PplOptions& o) { o.lengths = {int64_t{1} << 40}; }, "--lengths");
  refused([](PplOptions& o) { o.n_samples = 0; }, "--samples");
  refused([](PplOptions& o) { o.n_score = 1; }, "--score");
  refused([](PplOptions& o) { o.text.clear(); }, "has 0 tokens");
}

TEST_F(PplTest, UnwritableFileEndsTheRunWithASentence) {
  PplOptions options = Options();
  options.out_dir = directory_.File("out");
  std::filesystem::create_directories(options.out_dir);
  std::filesystem::create_symlink("/dev/full", options.out_dir + "/ppl.jsonl");
  std::vector<PplRecord> records;
  const Status status = RunPpl(options, Hooks(), records);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("No space left"), std::string::npos) << status.error().message;
  EXPECT_TRUE(records.empty());
}

}  // namespace
}  // namespace longheads
