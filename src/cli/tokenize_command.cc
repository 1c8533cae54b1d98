#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "formats/gguf.h"
#include "model/gguf_vocabulary.h"

namespace longheads {
namespace {

struct TokenizeOptions {
  std::string model;
  TextInput input;
  bool special = false;
  bool json = false;
};

// Needs no weights: a file with a vocabulary alone will do.
Result<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& model) {
  LH_ASSIGN(const std::string path, FindModel(model));
  LH_ASSIGN(const GgufFile file, GgufFile::Open(path));
  LH_ASSIGN(Vocabulary vocabulary, ReadVocabulary(file));
  return Tokenizer::Create(std::move(vocabulary));
}

Result<int> Tokenize(const TokenizeOptions& options) {
  LH_ASSIGN(const std::string text, ReadText(options.input));
  const std::string invalid = DescribeInvalidUtf8(text);
  if (!invalid.empty()) Note("note: {}; it and its like are read as U+FFFD\n", invalid);
  LH_ASSIGN(const auto tokenizer, LoadTokenizer(options.model));
  LH_ASSIGN(const std::size_t n_lost, tokenizer->BytesWithoutToken(text));
  if (n_lost > 0) {
    Note("note: {} bytes of the text have no token in this vocabulary and are left out\n", n_lost);
  }
  LH_ASSIGN(const std::vector<TokenId> ids,
            tokenizer->Encode(text, {.parse_special = options.special, .add_special = options.special}));
  if (options.json) {
    Print("{}\n", nlohmann::json(ids).dump());
  } else {
    for (const TokenId id : ids) Print("{}\n", id);
  }
  return 0;
}

// Whole numbers apart by white space, or one JSON array.
Result<std::vector<TokenId>> ParseIds(const std::string& text, int64_t n_tokens) {
  std::vector<TokenId> ids;
  const auto add = [&](int64_t id) -> Status {
    if (id < 0 || id >= n_tokens) {
      return InvalidInput(fmt::format("{} is not a token id: the vocabulary has 0 .. {}", id, n_tokens - 1));
    }
    ids.push_back(static_cast<TokenId>(id));
    return {};
  };
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') {
    const nlohmann::json array = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!array.is_array()) return InvalidInput("the ids are not a JSON array of whole numbers");
    for (const nlohmann::json& value : array) {
      // Not what it is, which may be of any length and depth.
      if (!value.is_number_integer()) {
        return InvalidInput(fmt::format("entry {} is {}, and not a token id", ids.size(), value.type_name()));
      }
      constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
      LH_TRY(add(value.is_number_unsigned() ? static_cast<int64_t>(std::min(value.get<uint64_t>(), kMost))
                                            : value.get<int64_t>()));
    }
    return ids;
  }
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (;;) {
    while (at != end && std::isspace(static_cast<unsigned char>(*at))) ++at;
    if (at == end) return ids;
    int64_t id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (rest != end && !std::isspace(static_cast<unsigned char>(*rest)))) {
      const std::string_view word(at, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - at, 20)));
      return InvalidInput(fmt::format("'{}' is not a token id: write one number a line, or a JSON array",
                                      word.substr(0, word.find_first_of(" \t\r\n"))));
    }
    LH_TRY(add(id));
    at = rest;
  }
}

Result<int> Detokenize(const TokenizeOptions& options) {
  LH_ASSIGN(const std::string text, ReadText(options.input));
  LH_ASSIGN(const auto tokenizer, LoadTokenizer(options.model));
  LH_ASSIGN(const std::vector<TokenId> ids,
            ParseIds(text, static_cast<int64_t>(tokenizer->vocabulary().tokens.size())));
  const std::string decoded = tokenizer->Decode(ids, options.special);
  if (options.json) {
    Print("{}\n", nlohmann::json(decoded).dump());
  } else {
    WriteOutput(decoded);
  }
  return 0;
}

}  // namespace

void AddTokenizeCommands(CLI::App& program, Command& command) {
  CLI::App* const tokenize = program.add_subcommand("tokenize", "Prints the token ids of a text");
  const auto to_ids = std::make_shared<TokenizeOptions>();
  tokenize
      ->add_option("-m,--model", to_ids->model,
                   "GGUF file (one with a vocabulary alone will do); without it, the default model")
      ->type_name("FILE");
  AddTextInput(*tokenize, to_ids->input, "Text");
  tokenize->add_flag("--special", to_ids->special,
                     "read control tokens in the text, and add BOS and EOS as the vocabulary asks");
  tokenize->add_flag("--json", to_ids->json, "one JSON array instead of one id a line");
  tokenize->footer(
      "Examples:\n  longheads tokenize -p \"Hello world\"\n  longheads tokenize -f book.txt | wc -l");
  tokenize->callback([to_ids, &command] { command = [to_ids] { return Tokenize(*to_ids); }; });

  CLI::App* const detokenize = program.add_subcommand("detokenize", "Prints the text of token ids");
  const auto to_text = std::make_shared<TokenizeOptions>();
  detokenize
      ->add_option("-m,--model", to_text->model,
                   "GGUF file (one with a vocabulary alone will do); without it, the default model")
      ->type_name("FILE");
  AddTextInput(*detokenize, to_text->input, "Ids: one a line, or one JSON array");
  detokenize->add_flag("--special", to_text->special, "print control tokens too");
  detokenize->add_flag("--json", to_text->json, "print one JSON string");
  detokenize->footer("Example:\n  longheads tokenize -p \"Hello world\" | longheads detokenize -");
  detokenize->callback([to_text, &command] { command = [to_text] { return Detokenize(*to_text); }; });
}

}  // namespace longheads
