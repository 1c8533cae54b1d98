#include "eval/passkey.h"

#include <gtest/gtest.h>

#include <fstream>
#include <new>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

class PasskeyTest : public testing::Test {
 protected:
  PasskeyOptions Options() const {
    PasskeyOptions options;
    options.attention = {"full"};
    options.lengths = {1500, 2000};
    options.n_depths = 2;
    options.max_tokens = 3;
    return options;
  }

  PasskeyHooks Hooks() {
    return {.load =
                [this](const std::string& attention) {
                  ++n_loads_;
                  return LoadTiny(model_, attention);
                },
            .on_method = {},
            .on_prefill = {},
            .on_case =
                [this](const PasskeyRecord&, bool from_file, int64_t done, int64_t) {
                  (from_file ? n_found_ : n_run_) += 1;
                  if (done == cancel_after_) cancel_.Cancel();
                },
            .cancel = &cancel_};
  }

  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
  CancelToken cancel_;
  int64_t cancel_after_ = -1;
  int n_loads_ = 0, n_found_ = 0, n_run_ = 0;
  std::vector<PasskeyRecord> records_;
};

// Bit by bit, whatever was read before: also where the key comes earlier than the common text reaches.
TEST_F(PasskeyTest, WhatWasReadForOtherCasesChangesNothing) {
  const std::pair<std::string, bool> methods[] = {
      {"full", true},
      {"longheads,chunk=64,window=256,begin=256", true},
      {"infllm,n_init=8,n_local=200,block=16,top_k=4,exec_block=100", true},
      {"esa,n_init=8,k=50,n_local=200,chunk=100,score=exact", true},
      {"lm-infinite,local=200", true},
      {"lm-infinite,local=200,top_k=5", false},
      {"dynamic-ntk:mode=exact+full", false},
      {"dynamic-ntk:mode=stale+full", false},
      {"dynamic-ntk+full", true},
      {"moba,chunk=64,decode=gated", true},
      {"quest,page=16,budget=64", true},
      {"self-extend,group=4,window=64", true},
  };
  for (const auto& [attention, shares] : methods) {
    const auto engine = TinyEngine(directory_, attention);
    ASSERT_TRUE(engine);
    PromptReader sharing(*engine, /*share=*/true);
    int64_t n_shared = 0;
    for (const int64_t depth_ppm : {300000, 600000, 600000, 200000, 900000}) {
      const PasskeyCase c{.length = 1500, .depth_ppm = depth_ppm, .repeat = n_shared % 7};
      const int64_t key = PasskeyKey(1, c);
      const auto prompt = BuildPasskeyPrompt(*engine, {.form = PromptForm::kChat}, c, key);
      ASSERT_TRUE(prompt) << prompt.error().message;
      PromptReader alone(*engine, /*share=*/false);
      auto shared = sharing.Read(*prompt, nullptr, {});
      auto anew = alone.Read(*prompt, nullptr, {});
      ASSERT_TRUE(shared && anew);
      EXPECT_EQ(anew->shared, 0);
      EXPECT_EQ(shared->session.tokens(), prompt->tokens);
      EXPECT_EQ(shared->hidden, anew->hidden);
      n_shared += shared->shared;
      const auto a = AnswerPasskey(*engine, PromptForm::kChat, *prompt, key, std::move(*shared), 8, nullptr);
      const auto b = AnswerPasskey(*engine, PromptForm::kChat, *prompt, key, std::move(*anew), 8, nullptr);
      ASSERT_TRUE(a && b);
      EXPECT_EQ(a->text, b->text);
      EXPECT_EQ(a->digits_right, b->digits_right);
      EXPECT_EQ(a->digits, 5);
    }
    EXPECT_EQ(n_shared > 1500, shares) << attention << " " << n_shared;
    if (!shares) {
      EXPECT_EQ(n_shared, 0) << attention;
    }
  }
}

TEST_F(PasskeyTest, EveryCaseIsRunOnceAndKept) {
  PasskeyOptions options = Options();
  options.attention = {"full", "longheads,chunk=64,window=256", "full"};
  options.n_repeats = 2;
  options.out_dir = directory_.File("out");
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(records_.size(), 2u * 2 * 2 * 2);
  EXPECT_EQ(n_run_, 16);
  for (const PasskeyRecord& record : records_) {
    EXPECT_EQ(record.setup.style.form, PromptForm::kChat);
    EXPECT_EQ(record.key, PasskeyKey(0, record.which));
    EXPECT_EQ(record.digits, 5);
    EXPECT_LE(record.digits_right, 5);
    EXPECT_EQ(record.correct, AnswersPasskey(record.answer, record.key));
  }
  const auto journal = OpenPasskeyJournal(options.out_dir);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->records().size(), 16u);
  EXPECT_TRUE(std::filesystem::exists(directory_.File("out/passkey.csv")));
}

TEST_F(PasskeyTest, CasesInTheFileAreNotRunAgain) {
  PasskeyOptions options = Options();
  options.out_dir = directory_.File("out");
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(n_run_, 4);
  records_.clear();
  options.lengths = {1500, 1700, 2000};
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(n_found_, 4);
  EXPECT_EQ(n_run_, 4 + 2);
  EXPECT_EQ(records_.size(), 6u);
  options.seed = 1;
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(n_run_, 4 + 2 + 6);
}

TEST_F(PasskeyTest, SameCaseGivesTheSameWhicheverOthersRun) {
  PasskeyOptions options = Options();
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  const std::vector<PasskeyRecord> all = std::move(records_);
  records_.clear();
  options.lengths = {2000};
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  ASSERT_EQ(records_.size(), 2u);
  for (const PasskeyRecord& record : records_) {
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const auto& r) { return r.which == record.which; });
    ASSERT_NE(same, all.end());
    EXPECT_EQ(same->key, record.key);
    EXPECT_EQ(same->answer, record.answer);
    EXPECT_EQ(same->digits_right, record.digits_right);
  }
}

TEST_F(PasskeyTest, InterruptKeepsWhatIsDone) {
  PasskeyOptions options = Options();
  options.out_dir = directory_.File("out");
  cancel_after_ = 2;
  const Status status = RunPasskey(options, Hooks(), records_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(records_.size(), 2u);
  cancel_after_ = -1;
  cancel_.Reset();
  records_.clear();
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(n_found_, 2);
  EXPECT_EQ(n_run_, 4);
}

TEST_F(PasskeyTest, InterruptWithinAPromptIsAnErrorOfItsKind) {
  PasskeyHooks hooks = Hooks();
  hooks.on_prefill = [this](const std::string&, const PasskeyCase&, int64_t) {
    return std::function<void(double)>([this](double) { cancel_.Cancel(); });
  };
  const Status status = RunPasskey(Options(), hooks, records_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
  EXPECT_TRUE(records_.empty());
}

TEST_F(PasskeyTest, ProgressOfACaseGoesFromNothingToAllOfWhatIsRead) {
  PasskeyHooks hooks = Hooks();
  std::vector<double> shares;
  hooks.on_prefill = [&](const std::string&, const PasskeyCase&, int64_t n_tokens) {
    EXPECT_GT(n_tokens, 0);
    EXPECT_DOUBLE_EQ(shares.empty() ? 1 : shares.back(), 1);
    shares.clear();
    return std::function<void(double)>([&](double share) {
      EXPECT_GE(share, shares.empty() ? 0 : shares.back());
      shares.push_back(share);
    });
  };
  ASSERT_TRUE(RunPasskey(Options(), hooks, records_));
  EXPECT_DOUBLE_EQ(shares.back(), 1);
}

TEST_F(PasskeyTest, FailedCaseIsKeptWithItsReasonAndTheOthersGoOn) {
  PasskeyOptions options = Options();
  options.out_dir = directory_.File("out");
  PasskeyHooks hooks = Hooks();
  bool short_of_memory = true;
  hooks.on_prefill = [&](const std::string&, const PasskeyCase& c, int64_t) {
    if (short_of_memory && c.length == 2000) throw std::bad_alloc();
    return std::function<void(double)>();
  };
  const auto run = [&] {
    records_.clear();
    n_found_ = n_run_ = 0;
    return RunPasskey(options, hooks, records_);
  };
  ASSERT_TRUE(run());
  ASSERT_EQ(records_.size(), 4u);
  for (const PasskeyRecord& record : records_) {
    EXPECT_EQ(record.failed, record.which.length == 2000 ? "out of memory" : "");
    EXPECT_FALSE(record.correct && !record.failed.empty());
  }
  short_of_memory = false;
  ASSERT_TRUE(run());
  EXPECT_EQ(n_run_, 0) << "a failed case is done until it is asked for";
  options.retry_failed = true;
  ASSERT_TRUE(run());
  EXPECT_EQ(n_run_, 2);
  for (const PasskeyRecord& record : records_) EXPECT_EQ(record.failed, "");
  ASSERT_TRUE(run());
  EXPECT_EQ(n_run_, 0);
}

TEST_F(PasskeyTest, ShardsAreTheWhole) {
  PasskeyOptions options = Options();
  options.n_depths = 3;
  options.out_dir = directory_.File("out");
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  const std::vector<PasskeyRecord> whole = std::move(records_);
  std::vector<PasskeyRecord> parts;
  for (const int64_t index : {1, 2}) {
    options.shard = {.index = index, .count = 2};
    records_.clear();
    ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
    EXPECT_EQ(records_.size(), 3u);
    parts.insert(parts.end(), records_.begin(), records_.end());
  }
  EXPECT_EQ(n_found_, 0);
  ASSERT_EQ(parts.size(), whole.size());
  for (const PasskeyRecord& record : whole) {
    const auto same =
        std::ranges::find_if(parts, [&](const PasskeyRecord& r) { return r.which == record.which; });
    ASSERT_NE(same, parts.end());
    EXPECT_EQ(same->answer, record.answer);
    EXPECT_EQ(same->digits_right, record.digits_right);
    EXPECT_EQ(same->Fingerprint(), record.Fingerprint());
  }
}

TEST_F(PasskeyTest, JournalOfAnOlderProgramIsContinued) {
  PasskeyOptions options = Options();
  options.out_dir = directory_.File("out");
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  const std::string path = options.out_dir + "/passkey.jsonl";
  std::ofstream(path, std::ios::trunc).close();
  for (const PasskeyRecord& record : records_) {
    const std::string line = PasskeyJson(record);
    AppendText(path, line.substr(0, line.find(",\"fingerprint\"")) + "}\n");
  }
  records_.clear();
  n_run_ = 0;
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(n_found_, 4);
  EXPECT_EQ(n_run_, 0);
}

TEST_F(PasskeyTest, WhoKeepsGoingHasTheCasesOfAMethodThatCannotBeLoadedFail) {
  PasskeyOptions options = Options();
  options.attention = {"landmark", "full"};
  options.out_dir = directory_.File("out");
  ASSERT_FALSE(RunPasskey(options, Hooks(), records_)) << "a command says it before the first case";
  EXPECT_TRUE(records_.empty());
  options.keep_going = true;
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  ASSERT_EQ(records_.size(), 8u);
  for (const PasskeyRecord& record : records_) {
    EXPECT_EQ(record.failed.find("<landmark>") != std::string::npos, record.attention == "landmark")
        << record.failed;
    EXPECT_TRUE(record.setup == records_[0].setup);
  }
  records_.clear();
  n_run_ = 0;
  ASSERT_TRUE(RunPasskey(options, Hooks(), records_));
  EXPECT_EQ(n_run_, 0);
  options.attention = {"landmark"};  // of which not even a setup is known
  EXPECT_FALSE(RunPasskey(options, Hooks(), records_));
}

TEST_F(PasskeyTest, WrongMethodIsRefusedBeforeTheFirstCase) {
  PasskeyOptions options = Options();
  options.attention = {"full", "longhead"};
  const Status status = RunPasskey(options, Hooks(), records_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(n_run_, 0);
}

TEST_F(PasskeyTest, ImpossibleOptionsAreRefusedByName) {
  const auto refused = [&](auto change, const std::string& name) {
    PasskeyOptions options = Options();
    change(options);
    const Status status = RunPasskey(options, Hooks(), records_);
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
  };
  refused([](PasskeyOptions& o) { o.attention.clear(); }, "--attn");
  refused([](PasskeyOptions& o) { o.lengths.clear(); }, "--lengths");
  refused([](PasskeyOptions& o) { o.lengths = {4096, 0}; }, "--lengths has 0");
  refused([](PasskeyOptions& o) { o.lengths = {int64_t{1} << 40}; }, "--lengths");
  refused([](PasskeyOptions& o) { o.lengths = {4096, 250}; }, "--lengths 250 is too short");
  refused([](PasskeyOptions& o) { o.n_depths = 0; }, "--depths");
  refused([](PasskeyOptions& o) { o.n_repeats = -1; }, "--repeats");
  refused([](PasskeyOptions& o) { o.max_tokens = -1; }, "-n");
  refused([](PasskeyOptions& o) { o.form = "poem"; }, "--form");
  refused([](PasskeyOptions& o) { o.filler = "sand"; }, "--filler");
  EXPECT_EQ(n_run_, 0);
}

TEST_F(PasskeyTest, UnwritableFileEndsTheRunWithASentence) {
  PasskeyOptions options = Options();
  options.out_dir = directory_.File("out");
  std::filesystem::create_directories(options.out_dir);
  std::filesystem::create_symlink("/dev/full", options.out_dir + "/passkey.jsonl");
  const Status status = RunPasskey(options, Hooks(), records_);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("No space left"), std::string::npos) << status.error().message;
  EXPECT_TRUE(records_.empty());
}

}  // namespace
}  // namespace longheads
