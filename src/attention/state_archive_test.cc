// Saved states: every registered method goes on from one as the original does, wherever blocks and pages end;
// what is not a state's bytes is refused. Random options and ways of feeding: properties_test.cc.
#include "attention/state_archive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "attention/esa.h"
#include "attention/infllm.h"
#include "attention/registry.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

constexpr int64_t kTrainedWindow = 4096;

// A spec for each method, under which a text of 800 tokens leaves every window and fills many blocks.
const std::map<std::string, std::string>& Specs() {
  static const std::map<std::string, std::string> specs = {
      {"auto", "auto,chunk=16,window=48,begin=64"},
      {"esa", "esa,n_init=4,k=32,n_local=100,chunk=16,score=exact"},
      {"full", "full"},
      {"infllm", "infllm,n_init=10,n_local=60,block=12,top_k=3,representatives=2,exec_block=32"},
      {"landmark", "landmark,block=8,top_k=2,token=1"},
      {"leaky-rerope", "leaky-rerope,window=40,factor=4"},
      {"lm-infinite", "lm-infinite,global=4,local=40,top_k=5,top_k_from=0,top_k_at=40"},
      {"longheads", "longheads,chunk=24,window=96,begin=96,reps=kv,fix=both"},
      {"moba", "moba,chunk=16,top_k=2,decode=gated"},
      {"quest", "quest,page=16,budget=64,dense_layers=0"},
      {"rerope", "rerope,window=40"},
      {"self-extend", "self-extend,group=4,window=40"},
      {"streaming-llm", "streaming-llm,start=4,recent=40"},
  };
  return specs;
}

// Saves again and again, around the ends of blocks and pages; each time a sequence that goes on from all
// saves does what the original does.
void ExpectToGoOn(const Policy& policy, const std::string& name) {
  constexpr int64_t kAfter = 30;
  const std::vector<int64_t> stops = {1,  7,   8,   9,   15,  16,  17,  23,  24,  25,  95, 96,
                                      97, 140, 141, 142, 255, 256, 257, 511, 512, 513, 768};
  const LayerInputs inputs = UniformInputs(kCaseShape, stops.back() + kAfter, 3);
  OneLayer layer(CaseSetup(policy, inputs.n));
  std::vector<SavedState> saves;
  for (const int64_t stop : stops) {
    SCOPED_TRACE(name + " at " + std::to_string(stop));
    const int64_t from = layer.size();
    if (stop - from > 2) layer.Prefill(inputs, stop - from - 2);
    while (layer.size() < stop) layer.Decode(inputs);
    saves.push_back(layer.Save(from));
    const SavedState whole = layer.Save(0);
    auto restored = layer.Restored(saves);
    ASSERT_TRUE(restored.has_value()) << restored.error().message;
    ASSERT_EQ(restored->Save(0), whole);
    ASSERT_EQ(restored->RewindPoint(stop), stop);
    for (int64_t m = 0; m <= stop; ++m) ASSERT_LE(restored->RewindPoint(m), layer.RewindPoint(m)) << m;
    OneLayer original = layer.Fork();
    OneLayer back = restored->Fork();
    const int64_t point = back.RewindPoint(stop - 1);
    for (OneLayer* const one : {&original, &*restored, &back}) {
      if (one == &back) back.Truncate(point);
      one->Prefill(inputs, stop + kAfter - 5 - one->size());
      while (one->size() < stop + kAfter) one->Decode(inputs);
    }
    ASSERT_EQ(restored->out(), original.out());
    OneLayer original_back = layer.Fork();
    original_back.Truncate(point);
    original_back.Prefill(inputs, stop + kAfter - 5 - original_back.size());
    while (original_back.size() < stop + kAfter) original_back.Decode(inputs);
    ASSERT_EQ(back.out(), original_back.out());
  }
}

TEST(SavedStates, LetEveryMethodGoOn) {
  for (const std::string& name : PolicyNames()) {
    ASSERT_TRUE(Specs().contains(name)) << "say above with which options '" << name << "' is saved";
    ASSERT_NO_FATAL_FAILURE(ExpectToGoOn(*MakeCase(Specs().at(name), kTrainedWindow), name));
  }
}

std::shared_ptr<const Policy> CompressedEsa(uint64_t seed) {
  constexpr EsaOptions kOptions{.n_init = 3, .k = 7, .n_local = 30, .chunk = 8, .dim = 5, .eps = 1};
  const int64_t n_columns = kCaseShape.n_kv_heads * kCaseShape.head_dim;
  EsaProjections::Layer layer{.q = Uniform("q", seed, kOptions.dim * n_columns),
                              .k = Uniform("k", seed, kOptions.dim * n_columns)};
  return std::make_shared<Esa>(
      kOptions, kCaseShape,
      std::make_shared<EsaProjections>(EsaProjections{
          .distance = kOptions.n_local, .n_rows = kOptions.dim, .n_columns = n_columns, .layers = {layer}}));
}

TEST(SavedStates, HoldCompressedKeysOfOneCompression) {
  const auto policy = CompressedEsa(1);
  ExpectToGoOn(*policy, "esa");
  const LayerInputs inputs = UniformInputs(kCaseShape, 20, 3);
  OneLayer layer(CaseSetup(*policy, inputs.n));
  layer.Prefill(inputs, inputs.n);
  const SavedState save = layer.Save(0);
  const std::span<const std::byte> added[] = {save.added};
  EXPECT_TRUE(RestoreState(*CompressedEsa(1)->NewState(), added, save.latest, inputs.n));
  EXPECT_FALSE(RestoreState(*CompressedEsa(2)->NewState(), added, save.latest, inputs.n));
}

// Which no output shows.
TEST(SavedStates, KeepInfLlmsStatistics) {
  const auto policy =
      MakeCase("infllm,n_init=0,n_local=30,block=4,top_k=3,exec_block=8,max_cached_block=4", kTrainedWindow);
  const LayerInputs inputs = UniformInputs(kCaseShape, 200, 3);
  OneLayer layer(CaseSetup(*policy, inputs.n));
  layer.Prefill(inputs, 140);
  const auto expect_the_same = [&](const auto& go_back) {
    const SavedState save = layer.Save(0);
    auto restored = layer.Restored(std::span(&save, 1));
    ASSERT_TRUE(restored.has_value());
    OneLayer original = layer.Fork();
    std::vector<std::pair<int64_t, int64_t>> found;
    for (OneLayer* const one : {&original, &*restored}) {
      go_back(*one);
      while (one->size() < inputs.n) one->Decode(inputs);
      const InfLlm::CacheStatistics statistics = InfLlm::StatisticsOf(one->state());
      found.emplace_back(statistics.hits, statistics.misses);
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_GT(found[0].first, 0);
    EXPECT_GT(found[0].second, 0);
  };
  const auto take_back_last = [](OneLayer& one) { one.Truncate(one.RewindPoint(one.size() - 1)); };
  const auto take_back_answer = [](OneLayer& one) { one.Truncate(one.RewindPoint(140)); };
  expect_the_same([](OneLayer&) {});
  expect_the_same(take_back_last);
  while (layer.size() < 150) layer.Decode(inputs);
  expect_the_same([](OneLayer&) {});
  expect_the_same(take_back_last);
  expect_the_same(take_back_answer);
}

TEST(SavedStates, DoNotWriteAgainWhatIsWritten) {
  for (const char* const name : {"longheads", "quest", "moba", "landmark", "infllm"}) {
    const auto policy = MakeCase(Specs().at(name), kTrainedWindow);
    const LayerInputs inputs = UniformInputs(kCaseShape, 480, 3);
    OneLayer layer(CaseSetup(*policy, inputs.n));
    layer.Prefill(inputs, 384);
    const auto header = static_cast<int64_t>(layer.Save(384).added.size());
    layer.Prefill(inputs, 96);
    const auto whole = static_cast<int64_t>(layer.Save(0).added.size()) - header;
    const auto delta = static_cast<int64_t>(layer.Save(384).added.size()) - header;
    EXPECT_GT(delta, 0) << name;
    EXPECT_LT(delta, whole / 4) << name;
  }
}

// ---- What is refused

class Refused : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kTokens = 150;

  Refused() {
    layer_.Prefill(inputs_, kTokens - 20);
    while (layer_.size() < kTokens - 3) layer_.Decode(inputs_);
  }

  // What is said of saves that are not those of the layer; empty where they are taken.
  std::string Refusal(const std::vector<SavedState>& saves) const {
    const auto restored = layer_.Restored(saves);
    return restored ? "" : restored.error().message;
  }
  std::string RefusalOf(std::vector<std::byte> added, std::vector<std::byte> latest) const {
    return Refusal({{.added = std::move(added), .latest = std::move(latest)}});
  }

  const std::shared_ptr<const Policy> policy_ = MakeCase(Specs().at(GetParam()), kTrainedWindow);
  const LayerInputs inputs_ = UniformInputs(kCaseShape, kTokens, 3);
  OneLayer layer_{CaseSetup(*policy_, kTokens)};
};

INSTANTIATE_TEST_SUITE_P(SavedStates, Refused,
                         testing::Values("full", "longheads", "quest", "landmark", "infllm", "esa"));

TEST_P(Refused, IsWhatWasCutOffOrHasGrown) {
  const SavedState save = layer_.Save(0);
  EXPECT_EQ(RefusalOf(save.added, save.latest), "");
  const auto refused_beside = [&](const std::vector<std::byte>& bytes, const auto& refusal_of) {
    for (std::size_t n = 0; n < bytes.size(); n += n < 200 ? 1 : 61) {
      ASSERT_NE(refusal_of({bytes.begin(), bytes.begin() + static_cast<int64_t>(n)}), "") << n;
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back({});
    EXPECT_NE(refusal_of(longer).find("1 bytes too many"), std::string::npos);
  };
  using Bytes = std::vector<std::byte>;
  refused_beside(save.added, [&](const Bytes& bytes) { return RefusalOf(bytes, save.latest); });
  refused_beside(save.latest, [&](const Bytes& bytes) { return RefusalOf(save.added, bytes); });
}

TEST_P(Refused, IsWhatDoesNotFollow) {
  OneLayer layer = layer_.Fork();
  const SavedState first = layer.Save(0);
  layer.Decode(inputs_);
  const SavedState second = layer.Save(layer.size() - 1);
  const auto refusal = [&](const std::vector<SavedState>& saves) {
    const auto restored = layer.Restored(saves);
    return restored ? "" : restored.error().message;
  };
  EXPECT_EQ(refusal({first, second}), "");
  EXPECT_NE(refusal({second}).find("holds 147 where 0 to 0 can be"), std::string::npos);
  EXPECT_NE(refusal({first}).find("is of 147 tokens, not of 148"), std::string::npos);
  EXPECT_NE(refusal({second, first}), "");
  EXPECT_NE(refusal({first, {.added = second.added, .latest = first.latest}}), "");
}

TEST_P(Refused, IsAnotherLayout) {
  const SavedState save = layer_.Save(0);
  const auto changed = [&](char to) {
    SavedState other = save;
    for (std::vector<std::byte>* const bytes : {&other.added, &other.latest}) {
      (*bytes)[sizeof(int64_t) + layer_.state().Layout().size() - 1] = std::byte(to);
    }
    return Refusal({other});
  };
  EXPECT_NE(changed('?').find("?', but is kept as '" + layer_.state().Layout() + "'"), std::string::npos);
  EXPECT_NE(changed('\x80').find("saved as something else, but"), std::string::npos);
}

// Whatever is flipped, it is refused, or what is restored goes on.
TEST_P(Refused, OrElseHarmless) {
  const SavedState save = layer_.Save(0);
  int n_taken = 0;
  for (const bool latest : {false, true}) {
    const std::size_t size = latest ? save.latest.size() : save.added.size();
    for (std::size_t at = 0; at < size; at += at < 200 ? 1 : 41) {
      for (const int flip : {0x01, 0x80, 0xFF}) {
        SavedState other = save;
        (latest ? other.latest : other.added)[at] ^= std::byte(flip);
        auto restored = layer_.Restored(std::span(&other, 1));
        if (!restored) continue;
        ++n_taken;
        restored->Decode(inputs_);
        restored->Truncate(restored->RewindPoint(restored->size() - 1));
        restored->Prefill(inputs_, inputs_.n - restored->size());
      }
    }
  }
  // A vector's numbers may be any; what has none tells every change.
  EXPECT_EQ(n_taken > 0, save.added.size() + save.latest.size() > 200);
}

TEST(SavedStates, OfOtherOptionsAreRefusedWithBoth) {
  const auto small = MakeCase("longheads,chunk=16,window=48,begin=64", kTrainedWindow)->NewState();
  const auto large = MakeCase("longheads,chunk=32,window=96,begin=96", kTrainedWindow)->NewState();
  const SavedState save = SaveState(*small, 0, 0);
  const std::span<const std::byte> added[] = {save.added};
  const auto restored = RestoreState(*large, added, save.latest, 0);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(
      restored.error().message,
      "the saved state of the attention method does not fit: it was saved as 'longheads 1: chunks of 16, 4 x "
      "64, queries 256', but is kept as 'longheads 1: chunks of 32, 4 x 64, queries 256': the method's "
      "options, "
      "the model or the program's version are not those that saved it");
}

// The bytes that are in files: a change of them is a new layout, with a new name.
TEST(SavedStates, HaveTheBytesThatFilesHold) {
  const auto policy = MakeCase("moba,chunk=2,top_k=1", kTrainedWindow);
  LayerInputs inputs{.shape = kCaseShape, .n = 5, .q = {}, .k = {}, .v = {}};
  inputs.q.assign(static_cast<std::size_t>(inputs.n * kCaseShape.n_heads * kCaseShape.head_dim), 0.0f);
  inputs.k.assign(static_cast<std::size_t>(inputs.n * kCaseShape.n_kv_heads * kCaseShape.head_dim), 0.0f);
  inputs.v = inputs.k;
  OneLayer layer(CaseSetup(*policy, inputs.n));
  layer.Prefill(inputs, inputs.n);
  const SavedState save = layer.Save(3);
  const std::string layout = "block-vectors 1: 2 tokens, 2 x 64";
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(layout.size());
  expected += layout;
  const std::string head = expected;
  expected += std::string("\3\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 16) + std::string(2 * 64 * sizeof(float), '\0');
  const auto text = [](const std::vector<std::byte>& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(text(save.added), expected);
  EXPECT_EQ(text(save.latest), head + std::string("\5\0\0\0\0\0\0\0", 8));
}

}  // namespace
}  // namespace longheads
