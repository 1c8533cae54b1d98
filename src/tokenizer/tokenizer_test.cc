#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/sanitized.h"
#include "tokenizer/golden_cases.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<const Tokenizer> Make(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return std::move(*tokenizer);
}

std::unique_ptr<const Tokenizer> MakeBpe(std::string pre_tokenizer) {
  Vocabulary vocabulary = ReadGoldenVocabulary(GoldenPath("bpe.json"));
  vocabulary.pre_tokenizer = std::move(pre_tokenizer);
  return Make(std::move(vocabulary));
}

std::unique_ptr<const Tokenizer> MakeSpm() { return Make(ReadGoldenVocabulary(GoldenPath("spm.json"))); }

std::vector<std::unique_ptr<const Tokenizer>> MakeAll() {
  std::vector<std::unique_ptr<const Tokenizer>> all;
  for (const char* name : {"smollm", "llama-bpe", "qwen2", "gpt-2", "default"}) all.push_back(MakeBpe(name));
  all.push_back(MakeSpm());
  return all;
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.has_value()) << ids.error().message;
  return ids.value_or(Ids());
}

// Three letters and what they merge to.
Vocabulary TinyBpe() {
  Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.tokens = {"a", "b", "c", "ab", "bc", "abc"};
  vocabulary.merges = {"b c", "a b", "a bc"};
  return vocabulary;
}

Vocabulary TinySpm() {
  Vocabulary vocabulary;
  vocabulary.model = Vocabulary::Model::kSpm;
  vocabulary.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a"};
  vocabulary.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl, TokenType::kNormal,
                      TokenType::kNormal,  TokenType::kNormal,  TokenType::kNormal,  TokenType::kNormal};
  vocabulary.scores = {0, 0, 0, -4, -5, -6, -1, -2};
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  return vocabulary;
}

std::string RandomText(std::mt19937& random) {
  // Small code points often, so that words, digits and spaces meet; any scalar value otherwise.
  std::string text;
  for (uint32_t length = random() % 40; length > 0; --length) {
    char32_t code_point = random() % 128;
    if (random() % 3 == 0) code_point = random() % 0x3000;
    if (random() % 8 == 0) code_point = random() % 0x110000;
    const bool is_excluded = (code_point >= 0xD800 && code_point <= 0xDFFF) || code_point == 0x2581;
    AppendUtf8(is_excluded ? U' ' : code_point, text);
  }
  return text;
}

TEST(Bpe, TheLowestRankMergesFirstWhereverItIs) {
  const auto tokenizer = Make(TinyBpe());
  EXPECT_EQ(Encode(*tokenizer, "abc"), Ids({5}));
  EXPECT_EQ(Encode(*tokenizer, "abab"), Ids({3, 3}));
  EXPECT_EQ(Encode(*tokenizer, "cab"), Ids({2, 3}));
}

TEST(Bpe, BytesWithoutATokenAreLeftOutAndReported) {
  const auto tokenizer = Make(TinyBpe());
  EXPECT_EQ(Encode(*tokenizer, "a\u00E9b"), Ids({3})) << "as in `tokenizers`, the neighbours meet";
  EXPECT_EQ(*tokenizer->BytesWithoutToken("a\u00E9b"), 2u);
  EXPECT_EQ(*tokenizer->BytesWithoutToken("abc"), 0u);
}

TEST(Bpe, TheLongestSpecialTokenWinsAndControlTokensOnlyWhenParsed) {
  const auto tokenizer = MakeBpe("smollm");
  const auto& tokens = tokenizer->vocabulary().tokens;
  const auto id = [&](std::string_view text) {
    return static_cast<TokenId>(std::find(tokens.begin(), tokens.end(), text) - tokens.begin());
  };
  EXPECT_EQ(Encode(*tokenizer, "<tool>><tool>"), Ids({id("<tool>>"), id("<tool>")}));
  EXPECT_EQ(Encode(*tokenizer, "<|im_start|>><|im_start|><|im", {.parse_special = true}),
            Ids({id("<|im_start|>>"), id("<|im_start|>"), id("<|im")}));
  for (const TokenId token : Encode(*tokenizer, "<|im_start|>")) {
    EXPECT_NE(token, id("<|im_start|>"));
    EXPECT_NE(token, id("<|im"));
  }
}

TEST(Tokenizer, NoControlTokenSharesAByteWithALiteralRange) {
  const auto bpe = MakeBpe("smollm");
  const auto& tokens = bpe->vocabulary().tokens;
  const auto id = [&](std::string_view text) {
    return static_cast<TokenId>(std::find(tokens.begin(), tokens.end(), text) - tokens.begin());
  };
  const std::string text = "<|im_start|>><|im_end|>::<|im_end|>";
  const auto encode = [&](size_t begin, size_t end) {
    return Encode(*bpe, text, {.parse_special = true, .literal = {begin, end}});
  };
  const Ids none = {id("<|im_start|>>"), id("<|im_end|>"), id("::"), id("<|im_end|>")};
  EXPECT_EQ(encode(0, 0), none);
  EXPECT_EQ(encode(13, 13), none) << "an empty range holds nothing";
  Ids plain = Encode(*bpe, ">");
  plain.insert(plain.begin(), id("<|im_start|>"));
  plain.insert(plain.end(), none.begin() + 1, none.end());
  EXPECT_EQ(encode(12, 13), plain) << "the shorter token ends before the range";
  EXPECT_EQ(encode(0, text.size()), Encode(*bpe, text)) << "user-defined tokens are found in any case";
  Ids end = Encode(*bpe, text.substr(0, text.size() - 10));
  end.push_back(id("<|im_end|>"));
  EXPECT_EQ(encode(0, text.size() - 10), end);
}

TEST(Bpe, AMissingPreTokenizerIsTheDefaultOneAndAnUnknownOneIsRefusedByName) {
  const std::string text = "12345 a=b, \u4E2D\u6587...";
  EXPECT_EQ(Encode(*MakeBpe(""), text), Encode(*MakeBpe("default"), text));
  Vocabulary vocabulary = TinyBpe();
  vocabulary.pre_tokenizer = "klingon";
  const auto refused = Tokenizer::Create(vocabulary);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(refused.error().message.find("klingon"), std::string::npos);
}

TEST(Spm, TheHighestScoreMergesFirstAndUnknownCharactersInARunAreOneToken) {
  const auto tokenizer = Make(TinySpm());
  EXPECT_EQ(Encode(*tokenizer, "ab"), Ids({3, 6}));
  EXPECT_EQ(Encode(*tokenizer, "a b"), Ids({7, 3, 5}));
  EXPECT_EQ(Encode(*tokenizer, "\u4E2D\u6587b"), Ids({3, 0, 5}));
  EXPECT_EQ(*tokenizer->BytesWithoutToken("\u4E2D\u6587b"), 6u);
  EXPECT_EQ(Encode(*tokenizer, ""), Ids());
}

TEST(Spm, TheSpacePrefixComesOnlyWhereTheVocabularyAsksForIt) {
  Vocabulary vocabulary = TinySpm();
  vocabulary.add_space_prefix = false;
  const auto tokenizer = Make(vocabulary);
  EXPECT_EQ(Encode(*tokenizer, "a a"), Ids({4, 7}));
  EXPECT_EQ(tokenizer->Decode(Ids({7, 4}), /*special=*/false), " aa");
  EXPECT_EQ(Make(TinySpm())->Decode(Ids({7, 4}), /*special=*/false), "aa");
  EXPECT_EQ(Make(TinySpm())->Decode(Ids({1, 7, 4}), /*special=*/false), "aa");
}

TEST(Spm, PiecesThatReachOverASpaceAreFound) {
  Vocabulary vocabulary = TinySpm();
  vocabulary.tokens.push_back("ab\u2581a");
  vocabulary.types.push_back(TokenType::kNormal);
  vocabulary.scores.push_back(-0.5f);
  EXPECT_EQ(Encode(*Make(vocabulary), "ab a"), Ids({3, 8}));
}

TEST(Tokenizer, BosAndEosStandAtTheEndsWhenTheVocabularyAsks) {
  for (Vocabulary vocabulary : {TinyBpe(), TinySpm()}) {
    vocabulary.bos = 1;
    vocabulary.eos = 2;
    vocabulary.add_bos = true;
    EXPECT_EQ(Encode(*Make(vocabulary), "", {.add_special = true}), Ids({1}));
    vocabulary.add_eos = true;
    EXPECT_EQ(Encode(*Make(vocabulary), "", {.add_special = true}), Ids({1, 2}));
    EXPECT_EQ(Encode(*Make(vocabulary), "", {.add_bos = true}), Ids({1})) << "a prompt, which goes on";
    EXPECT_EQ(Encode(*Make(vocabulary), ""), Ids());
  }
}

TEST(Tokenizer, EndOfGenerationIsEosAndEveryIdNamedSo) {
  Vocabulary vocabulary = TinyBpe();
  EXPECT_FALSE(Make(vocabulary)->IsEndOfGeneration(kNoToken)) << "a vocabulary without EOS ends nowhere";
  vocabulary.eos = 2;
  vocabulary.end_of_generation = {4};
  const auto tokenizer = Make(vocabulary);
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(2));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(4));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(3));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(kNoToken));
}

TEST(Tokenizer, AVocabularyThatContradictsItselfIsRefused) {
  const auto refuses = [](const Vocabulary& vocabulary, std::string_view words) {
    const auto tokenizer = Tokenizer::Create(vocabulary);
    ASSERT_FALSE(tokenizer.has_value()) << words;
    EXPECT_NE(tokenizer.error().message.find(words), std::string::npos) << tokenizer.error().message;
  };
  const auto with = [](Vocabulary vocabulary, auto change) {
    change(vocabulary);
    return vocabulary;
  };
  refuses(Vocabulary(), "no tokens");
  refuses(with(TinyBpe(), [](auto& v) { v.types.resize(2); }), "2 token types");
  refuses(with(TinyBpe(), [](auto& v) { v.types.resize(6, TokenType{9}); }), "type 9");
  refuses(with(TinyBpe(), [](auto& v) { v.bos = 6; }), "has only 6 tokens");
  refuses(with(TinyBpe(), [](auto& v) { v.eos = -2; }), "-2");
  refuses(with(TinyBpe(), [](auto& v) { v.add_bos = true; }), "names none");
  refuses(with(TinyBpe(), [](auto& v) { v.end_of_generation = {99}; }), "99");
  refuses(with(TinyBpe(), [](auto& v) { v.merges.push_back("ab"); }), "merge 3");
  refuses(with(TinyBpe(), [](auto& v) { v.merges.push_back("a b c"); }), "one space");
  refuses(with(TinyBpe(), [](auto& v) { v.merges.push_back("c c"); }), "does not have");
  refuses(with(TinyBpe(), [](auto& v) { v.merges.push_back(""); }), "merge 3");
  refuses(with(TinySpm(), [](auto& v) { v.scores.pop_back(); }), "7 scores");
  refuses(with(TinySpm(), [](auto& v) { v.scores[3] = std::nanf(""); }), "not a number");
  refuses(with(TinySpm(), [](auto& v) { v.unknown = kNoToken; }), "0 of the 256");
  refuses(with(TinySpm(), [](auto& v) { v.types[4] = TokenType::kByte; }), "<0xXX>");
}

TEST(Tokenizer, IdsOutsideTheVocabularyGiveNothing) {
  for (const auto& tokenizer : MakeAll()) {
    for (const TokenId id : {-2, -1, 100000, 2147483647}) EXPECT_EQ(tokenizer->TokenBytes(id, true), "");
  }
}

TEST(Tokenizer, ControlTokensShowOnlyWhenAsked) {
  const auto tokenizer = MakeBpe("smollm");
  const Ids ids = Encode(*tokenizer, "<|im_start|>user\nhi<|im_end|>", {.parse_special = true});
  EXPECT_EQ(tokenizer->Decode(ids, /*special=*/true), "<|im_start|>user\nhi<|im_end|>");
  EXPECT_EQ(tokenizer->Decode(ids, /*special=*/false), "user\nhi");
}

TEST(Tokenizer, TheRoundTripOfAnyTextIsTheIdentity) {
  std::mt19937 random(5);
  const auto all = MakeAll();
  for (int i = 0; i < 2000; ++i) {
    const std::string text = RandomText(random);
    for (const auto& tokenizer : all) {
      ASSERT_EQ(*tokenizer->BytesWithoutToken(text), 0u);
      ASSERT_EQ(tokenizer->Decode(Encode(*tokenizer, text), /*special=*/false), text);
    }
  }
}

TEST(Tokenizer, StreamingGivesWholeCharactersThatTogetherAreTheDecodedText) {
  std::mt19937 random(6);
  for (const auto& tokenizer : MakeAll()) {
    StreamingDecoder decoder(*tokenizer);
    for (int i = 0; i < 500; ++i) {
      Ids ids = Encode(*tokenizer, RandomText(random));
      for (TokenId& id : ids) {
        if (random() % 10 == 0) id = static_cast<TokenId>(random() % tokenizer->vocabulary().tokens.size());
      }
      std::string streamed;
      for (const TokenId id : ids) {
        const std::string part = decoder.Push(id);
        EXPECT_TRUE(IsWellFormedUtf8(part));
        streamed += part;
      }
      streamed += decoder.Finish();
      EXPECT_EQ(streamed, tokenizer->Decode(ids, /*special=*/false));
      std::string bytes;
      for (const TokenId id : ids) bytes += tokenizer->TokenBytes(id, /*special=*/false);
      const bool has_prefix =
          tokenizer->vocabulary().model == Vocabulary::Model::kSpm && bytes.starts_with(' ');
      EXPECT_EQ(streamed, ReplaceIllFormedUtf8(std::string_view(bytes).substr(has_prefix ? 1 : 0)));
    }
  }
}

TEST(Tokenizer, AHeldBackCharacterComesOutWithItsLastByte) {
  const auto tokenizer = MakeSpm();
  const auto& tokens = tokenizer->vocabulary().tokens;
  const auto byte = [&](const char* text) {
    return static_cast<TokenId>(std::find(tokens.begin(), tokens.end(), text) - tokens.begin());
  };
  StreamingDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Push(byte("<0xF0>")), "");
  EXPECT_EQ(decoder.Push(byte("<0x9F>")), "");
  EXPECT_EQ(decoder.Push(byte("<0x98>")), "");
  EXPECT_EQ(decoder.Push(byte("<0x80>")), "\U0001F600");
  EXPECT_EQ(decoder.Push(byte("<0xE4>")), "");
  EXPECT_EQ(decoder.Push(byte("<0x41>")), "\uFFFDA");
  EXPECT_EQ(decoder.Push(byte("<0xE4>")), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

// A megabyte without a space, and runs that a regular expression walks back over: what is quadratic in any of
// them takes hours, so a generous limit tells.
TEST(Tokenizer, LongTextsTakeTimeInProportion) {
  const auto start = std::chrono::steady_clock::now();
  const size_t n = kSanitized ? 1 << 18 : 1 << 20;
  std::mt19937 random(8);
  const auto repeated = [](std::string_view part, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  std::string letters, ideographs;
  while (letters.size() < n) letters.push_back(static_cast<char>('a' + random() % 26));
  while (ideographs.size() < n / 4) AppendUtf8(0x4E00 + random() % 0x5000, ideographs);
  for (const auto& tokenizer : {MakeBpe("smollm"), MakeSpm()}) {
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, letters), /*special=*/true), letters);
  }
  for (const auto& tokenizer : MakeAll()) {
    for (const std::string& text :
         {ideographs, repeated(" ", n), repeated("\u3000", n), repeated("\r\n", n / 4), repeated("<", n / 4),
          repeated("<|im_start|", n / 4)}) {
      EXPECT_FALSE(Encode(*tokenizer, text, {.parse_special = true}).empty());
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(4));
}

// Texts so large that each is still being encoded when the token is raised: many words; one word alone;
// nothing that the first expression of a pre-tokenizer looks for; what begins like a special token; what must
// be repaired first.
TEST(Tokenizer, EncodingStopsWhereItIsWhenItIsCancelled) {
  std::vector<std::string> texts;
  for (const char* const part :
       {"the quick brown fox 12 ", "abcd", "\u4E2D\u6587", "<|im_start|", "\xFF \x80"}) {
    std::string& text = texts.emplace_back();
    while (text.size() < std::size_t{1} << (kSanitized ? 22 : 25)) text += part;  // far more than 30 ms of work
  }
  for (const auto& tokenizer : MakeAll()) {
    for (const std::string& text : texts) {
      CancelToken cancel;
      std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        cancel.Cancel();
      });
      const auto ids = tokenizer->Encode(text, {.parse_special = true, .cancel = &cancel});
      canceller.join();
      ASSERT_FALSE(ids.has_value()) << text.substr(0, 20);
      EXPECT_EQ(ids.error().kind, ErrorKind::kCancelled);
    }
    CancelToken raised;
    raised.Cancel();
    for (const char* const text : {"", "a", "a b", "<|im_start|>", "<s>"}) {
      EXPECT_FALSE(tokenizer->Encode(text, {.parse_special = true, .cancel = &raised}).has_value());
    }
    EXPECT_EQ(tokenizer->BytesWithoutToken("a", &raised).error().kind, ErrorKind::kCancelled);
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  for (const auto& tokenizer : MakeAll()) {
    const std::string text = "It's 2024: the quick brown \U0001F98A jumps.\n\n\tOver 12345 dogs<|im_end|>";
    const Ids expected = Encode(*tokenizer, text, {.parse_special = true});
    std::vector<std::thread> threads;
    std::vector<int> n_equal(4, 0);
    for (int& count : n_equal) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) count += Encode(*tokenizer, text, {.parse_special = true}) == expected;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(n_equal, std::vector<int>(4, 200));
  }
}

}  // namespace
}  // namespace longheads
