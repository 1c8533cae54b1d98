// Any bytes as a text: encoded by the tokenizer that the first byte names, decoded at once and token by
// token. Also as a chat template, which must be recognised or refused.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/golden_cases.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

const std::vector<std::unique_ptr<const Tokenizer>>& Tokenizers() {
  static const auto tokenizers = [] {
    std::vector<std::unique_ptr<const Tokenizer>> all;
    const auto add = [&](Vocabulary vocabulary) {
      auto tokenizer = Tokenizer::Create(std::move(vocabulary));
      LH_CHECK(tokenizer.has_value());
      all.push_back(std::move(*tokenizer));
    };
    for (const char* pre_tokenizer : {"smollm", "llama-bpe", "qwen2", "gpt-2", "default"}) {
      Vocabulary vocabulary = ReadGoldenVocabulary(GoldenPath("bpe.json"));
      vocabulary.pre_tokenizer = pre_tokenizer;
      add(std::move(vocabulary));
    }
    for (const bool add_space_prefix : {true, false}) {
      Vocabulary vocabulary = ReadGoldenVocabulary(GoldenPath("spm.json"));
      vocabulary.add_space_prefix = add_space_prefix;
      add(std::move(vocabulary));
    }
    return all;
  }();
  return tokenizers;
}

void EncodeAndDecode(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  const auto ids = tokenizer.Encode(text, {.parse_special = parse_special});
  LH_CHECK(ids.has_value());
  const std::string decoded = tokenizer.Decode(*ids, /*special=*/true);
  StreamingDecoder stream(tokenizer, /*special=*/true);
  std::string streamed;
  for (const TokenId id : *ids) {
    const std::string part = stream.Push(id);
    LH_CHECK(IsWellFormedUtf8(part));
    streamed += part;
  }
  LH_CHECK(streamed + stream.Finish() == decoded);

  // SPM writes a space as U+2581, and puts one after a control token.
  const bool is_spm = tokenizer.vocabulary().model == Vocabulary::Model::kSpm;
  if (is_spm && (parse_special || text.find("\u2581") != std::string_view::npos)) return;
  LH_CHECK(decoded == ReplaceIllFormedUtf8(text));
}

}  // namespace
}  // namespace longheads

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto& tokenizers = longheads::Tokenizers();
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool parse_special = (data[0] & 0x80) != 0;
  if ((data[0] & 0x7F) == 0x7F) {
    const auto chat = longheads::ChatTemplate::Recognise(text);
    if (!chat) {
      LH_CHECK(longheads::IsWellFormedUtf8(chat.error().message));
      return 0;
    }
    const std::vector<longheads::ChatMessage> messages = {{"user", "question"}};
    LH_CHECK(chat->Render(messages, /*add_generation_prompt=*/true, "<s>", "</s>").has_value());
    return 0;
  }
  longheads::EncodeAndDecode(*tokenizers[data[0] % 0x40 % tokenizers.size()], text, parse_special);
  return 0;
}
