// Any bytes as a model file: what it declares of the model, its RoPE and its vocabulary is read or refused,
// and a vocabulary that is taken encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/gguf_vocabulary.h"
#include "model/weights.h"
#include "rope/declaration.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longheads;
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)), "fuzzed");
  if (!file) return 0;
  if (const auto config = ReadConfig(*file)) {
    (void)DeclaredFrequencies(config->rope, config->trained_window);
    (void)ReadWeights(*file, *config);
  }
  if (const auto text = ReadChatTemplateText(*file); text && *text) (void)ChatTemplate::Recognise(**text);
  auto vocabulary = ReadVocabulary(*file);
  if (!vocabulary) return 0;
  const auto tokenizer = Tokenizer::Create(std::move(*vocabulary));
  if (!tokenizer) return 0;
  const auto ids = (*tokenizer)
                       ->Encode("The pass key is 12345.\n\xE2\x82\xAC \xF0\x9F\x98\x80",
                                {.parse_special = true, .add_special = true});
  if (ids) (void)(*tokenizer)->Decode(*ids, /*special=*/true);
  return 0;
}
