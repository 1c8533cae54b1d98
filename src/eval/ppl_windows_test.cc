#include "eval/ppl_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

TEST(SlidingWindows, ScoreEveryTokenOnce) {
  using Windows = std::vector<PplWindow>;
  EXPECT_EQ(SlidingWindows(10, 4, 2), (Windows{{0, 0, 4}, {2, 4, 6}, {4, 6, 8}, {6, 8, 10}}));
  EXPECT_EQ(SlidingWindows(9, 4, 2), (Windows{{0, 0, 4}, {2, 4, 6}, {4, 6, 8}, {6, 8, 9}}));
  EXPECT_EQ(SlidingWindows(3, 4, 2), (Windows{{0, 0, 3}}));
  EXPECT_EQ(SlidingWindows(4, 4, 4), (Windows{{0, 0, 4}}));
  EXPECT_EQ(SlidingWindows(6, 4, 4), (Windows{{0, 0, 4}, {4, 4, 6}}));
}

TEST(WindowAverages, CountTokensOrWindowsAlike) {
  WindowAverages averages;
  PplScore first, second;
  for (const double nll : {1.0, 2.0, 3.0}) first.Add(nll);
  second.Add(6.0);
  averages.Add(first);
  averages.Add(second);
  EXPECT_DOUBLE_EQ(averages.tokens().mean(), 12.0 / 4);
  EXPECT_DOUBLE_EQ(averages.mean_of_windows(), (2.0 + 6.0) / 2);
}

class PplWindowsTest : public testing::Test {
 protected:
  static std::string Words(int n, int step) {
    std::string text;
    for (int i = 0; i < n; ++i) text += std::to_string(i * step % 1009) + " ";
    return text;
  }

  std::vector<TaskRecord> Run(const std::string& attention, const PplWindowsOptions& options,
                              const std::string& out_dir = "") {
    return RunOn(model_, {.attention = {attention}, .out_dir = out_dir}, options);
  }
  std::vector<TaskRecord> RunOn(const std::string& model, const TaskRunOptions& run,
                                const PplWindowsOptions& options) {
    PplWindowsTask task(Haystack::FromText("", ""), documents_, options);
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model, spec); }};
    const Status status = RunTask(run, task, hooks, records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  }

  // By the definition: for each token that is scored, what stands before it in its window is read anew.
  std::vector<std::vector<double>> Naive(const std::string& attention, const TextDocument& document,
                                         int64_t window, int64_t stride) {
    const auto engine = LoadTiny(model_, attention);
    const Vocabulary& vocabulary = (*engine)->tokenizer().vocabulary();
    const auto tokens = (*engine)->tokenizer().Encode(document.text, {});
    const int64_t n = static_cast<int64_t>(tokens->size()), n_bos = vocabulary.add_bos ? 1 : 0;
    std::vector<std::vector<double>> nlls;
    int64_t scored = 0;
    for (int64_t begin = 0; scored < n; begin += stride) {
      const int64_t end = std::min(begin + window - n_bos, n);
      nlls.emplace_back();
      for (int64_t at = scored; at < end; ++at) {
        std::vector<TokenId> before;
        if (n_bos == 1) before.push_back(vocabulary.bos);
        before.insert(before.end(), tokens->begin() + begin, tokens->begin() + at);
        if (before.empty()) continue;
        Session session = (*engine)->NewSession();
        const auto hidden = (*engine)->Prefill(session, before, Outputs::kLast, {});
        const std::vector<float> logits = (*engine)->Logits(*hidden);
        double sum = 0;
        for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) sum += std::exp(double{logits[i]});
        nlls.back().push_back(std::log(sum) -
                              logits[static_cast<std::size_t>((*tokens)[static_cast<std::size_t>(at)])]);
      }
      scored = end;
    }
    return nlls;
  }

  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
  std::vector<TextDocument> documents_ = {{"a.txt", Words(40, 7919)}, {"b.txt", Words(11, 31)}};
};

TEST_F(PplWindowsTest, BothAveragesAreThoseOfTheDefinition) {
  const std::vector<TaskRecord> records =
      Run("full", {.lengths = {64}, .stride = 24, .n_tokens = 130}, directory_.File("out"));
  ASSERT_EQ(records.size(), 2u);
  double nll = 0, tokens = 0, means = 0, windows = 0;
  for (std::size_t d = 0; d < 2; ++d) {
    TextDocument cut = documents_[d];
    cut.text.resize(std::min<std::size_t>(cut.text.size(), 130));  // a byte is a token
    double sum = 0, n = 0, sum_of_means = 0, n_windows = 0;
    for (const std::vector<double>& window : Naive("full", cut, 64, 24)) {
      double of_window = 0;
      for (const double one : window) of_window += one;
      sum += of_window;
      n += static_cast<double>(window.size());
      sum_of_means += of_window / static_cast<double>(window.size());
      n_windows += 1;
    }
    ASSERT_EQ(records[d].failed, "");
    EXPECT_EQ(records[d].measured.values.at("scored").get<double>(), n);
    EXPECT_EQ(records[d].measured.values.at("windows").get<double>(), n_windows);
    EXPECT_NEAR(records[d].measured.score, sum / n, 1e-4);
    EXPECT_NEAR(records[d].measured.values.at("nll_of_windows").get<double>(), sum_of_means / n_windows,
                1e-4);
    EXPECT_NEAR(std::log(records[d].measured.values.at("ppl").get<double>()), sum / n, 1e-4);
    nll += sum, tokens += n, means += sum_of_means, windows += n_windows;
  }
  const std::string csv = ReadAll(directory_.File("out") + "/ppl-windows-totals.csv");
  const std::string row = csv.substr(csv.find('\n') + 1);
  double ppl = 0, ppl_of_windows = 0, n = 0, n_windows = 0;
  ASSERT_EQ(
      std::sscanf(row.c_str(), "full,64,sliding,24,2,%lf,%lf,%lf,%lf", &n, &n_windows, &ppl, &ppl_of_windows),
      4)
      << csv;
  EXPECT_EQ(n, tokens);
  EXPECT_EQ(n_windows, windows);
  EXPECT_NEAR(std::log(ppl), nll / tokens, 1e-4);
  EXPECT_NEAR(std::log(ppl_of_windows), means / windows, 1e-4);
}

// One pass: every token given all before it, which one window of the whole document says too.
TEST_F(PplWindowsTest, OnePassOfFullAttentionIsOneWindow) {
  const std::vector<TaskRecord> stream = Run("full", {.lengths = {130}, .stream = true, .stride = 24});
  const std::vector<TaskRecord> window = Run("full", {.lengths = {130}, .stride = 24, .n_tokens = 130});
  ASSERT_EQ(stream.size(), 2u);
  for (std::size_t d = 0; d < 2; ++d) {
    EXPECT_EQ(stream[d].measured.values.at("scored"), window[d].measured.values.at("scored"));
    EXPECT_NEAR(stream[d].measured.score, window[d].measured.score, 1e-5);
  }
  // A method that forgets says something else, token for token the same text.
  const std::vector<TaskRecord> forgets =
      Run("streaming-llm,start=4,recent=16", {.lengths = {130}, .stream = true, .stride = 24});
  EXPECT_EQ(forgets[0].measured.values.at("scored"), stream[0].measured.values.at("scored"));
  EXPECT_NE(forgets[0].measured.score, stream[0].measured.score);
}

// 130 tokens in calls of 43 leave one for the last call: it counts as one token, and calls are not averaged.
TEST_F(PplWindowsTest, StreamHasOneAverageAndItIsOverTokens) {
  const PplWindowsOptions options{.lengths = {130}, .stream = true, .stride = 43};
  EXPECT_EQ(PplWindowsTask(Haystack::FromText("", ""), documents_, options).shown(),
            std::vector<std::string>{"ppl"});
  const std::vector<TaskRecord> records = Run("full", options, directory_.File("out"));
  const std::vector<TaskRecord> one_call = Run("full", {.lengths = {130}, .stream = true, .stride = 130});
  ASSERT_EQ(records.size(), 2u);
  double nll = 0, tokens = 0;
  for (std::size_t d = 0; d < 2; ++d) {
    const Json& values = records[d].measured.values;
    for (const char* const name : {"ppl_of_windows", "nll_of_windows", "windows"}) {
      EXPECT_FALSE(values.contains(name)) << name;
    }
    EXPECT_NEAR(records[d].measured.score, one_call[d].measured.score, 1e-5);
    EXPECT_DOUBLE_EQ(values.at("ppl").get<double>(), std::exp(records[d].measured.score));
    nll += values.at("scored").get<double>() * records[d].measured.score;
    tokens += values.at("scored").get<double>();
  }
  const std::string csv = ReadAll(directory_.File("out") + "/ppl-windows-totals.csv");
  const std::string row = csv.substr(csv.find('\n') + 1);
  double n = 0, ppl = 0;
  int end = 0;
  ASSERT_EQ(std::sscanf(row.c_str(), "full,130,stream,43,2,%lf,,%lf,,%n", &n, &ppl, &end), 2) << csv;
  EXPECT_GT(end, 0) << csv;  // the average of windows is empty, too
  EXPECT_EQ(n, tokens);
  EXPECT_NEAR(std::log(ppl), nll / tokens, 1e-4);
}

// Whatever was run in a folder, its totals are of all that is there.
TEST_F(PplWindowsTest, TotalsAreOfEveryRunInTheFolder) {
  const PplWindowsOptions options{.lengths = {32, 64}, .stride = 24, .n_tokens = 70};
  const std::string streaming = "streaming-llm,start=4,recent=16";
  const std::string other_model = directory_.File("other.gguf");
  ASSERT_TRUE(TinyLlamaBuilder({.seed = 8}).Write(other_model));
  const std::string whole = directory_.File("whole"), apart = directory_.File("apart");
  const auto totals = [](const std::string& out) { return ReadAll(out + "/ppl-windows-totals.csv"); };
  const auto n_rows = [](const std::string& csv) { return std::count(csv.begin(), csv.end(), '\n') - 1; };

  RunOn(model_, {.attention = {"full", streaming}, .out_dir = whole}, options);
  const std::string of_one_run = totals(whole);
  EXPECT_EQ(n_rows(of_one_run), 4);
  for (const char* const part : {"1/2", "2/2"}) {
    const TaskRunOptions run{.attention = {"full", streaming}, .out_dir = apart, .shard = *ParseShard(part)};
    RunOn(model_, run, options);
  }
  EXPECT_EQ(totals(apart), of_one_run);

  // One method after the other, and another model.
  const std::string in_turn = directory_.File("in-turn");
  RunOn(model_, {.attention = {"full"}, .out_dir = in_turn}, options);
  RunOn(model_, {.attention = {streaming}, .out_dir = in_turn}, options);
  EXPECT_EQ(totals(in_turn), of_one_run);
  RunOn(other_model, {.attention = {"full"}, .out_dir = in_turn}, options);
  const std::string of_two_models = totals(in_turn);
  EXPECT_EQ(n_rows(of_two_models), 6);
  EXPECT_TRUE(of_two_models.starts_with(of_one_run)) << of_two_models;
  EXPECT_NE(of_two_models.find(",other.gguf,"), std::string::npos) << of_two_models;
}

TEST_F(PplWindowsTest, RefusesWhatMakesNoWindows) {
  const auto message = [](const TaskOptions::Values& values) {
    const auto task = MakeTask(PplWindowsKind(), values);
    return task ? std::string() : task.error().message;
  };
  EXPECT_NE(message({{"lengths", "256"}, {"stride", "256"}}).find("--stride is 256"), std::string::npos);
  EXPECT_NE(message({{"tokens", "0"}}).find("--documents names none"), std::string::npos);
  EXPECT_NE(message({{"documents", directory_.File("none")}}).find("No such file"), std::string::npos);
  EXPECT_NE(message({{"documents", directory_.File("")}}).find("has no *.txt"), std::string::npos);
}

}  // namespace
}  // namespace longheads
