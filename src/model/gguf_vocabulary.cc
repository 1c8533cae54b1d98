#include "model/gguf_vocabulary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace longheads {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr int64_t kNoId = 0xFFFFFFFF;  // -1 in the 32 bits that files have for an id

// Control tokens that end a turn or a text; files often name only one of them as EOS.
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|eot_id|>",      "<|eom_id|>",   "<|endoftext|>",
                                          "<|end|>",    "<|end_of_text|>", "<end_of_turn>"};
// Control tokens of chat templates, beside those.
constexpr std::string_view kMarkers[] = {"<|im_start|>", "<|begin_of_text|>", "<|start_header_id|>",
                                         "<|end_header_id|>"};

bool IsMarker(std::string_view token) {
  return std::ranges::find(kEndTexts, token) != std::end(kEndTexts) ||
         std::ranges::find(kMarkers, token) != std::end(kMarkers);
}

std::string Key(std::string_view name) { return fmt::format("{}{}", kPrefix, name); }
bool Has(const GgufFile& file, std::string_view name) { return file.Find(Key(name)) != nullptr; }

tl::unexpected<Error> Refuse(const GgufFile& file, std::string message) {
  return InvalidInput(fmt::format("{}: {}", file.name(), message));
}

Result<bool> ReadBool(const GgufFile& file, std::string_view name, bool missing) {
  if (!Has(file, name)) return missing;
  return file.GetBool(Key(name));
}

Result<TokenId> ReadId(const GgufFile& file, std::string_view name, TokenId missing, size_t n_tokens) {
  if (!Has(file, name)) return missing;
  LH_ASSIGN(const int64_t id, file.GetInt(Key(name)));
  if (id == kNoId || id == kNoToken) return kNoToken;
  if (id < 0 || static_cast<uint64_t>(id) >= n_tokens) {
    return Refuse(file,
                  fmt::format("{} is {}, but the vocabulary has only {} tokens", Key(name), id, n_tokens));
  }
  return static_cast<TokenId>(id);
}

Status CheckCount(const GgufFile& file, std::string_view name, size_t count, size_t n_tokens) {
  if (count == n_tokens) return {};
  return Refuse(file, fmt::format("{} has {} entries for {} tokens", Key(name), count, n_tokens));
}

Status ReadTypes(const GgufFile& file, Vocabulary& vocabulary) {
  if (!Has(file, "token_type")) return {};
  LH_ASSIGN(const std::vector<int64_t> types, file.GetInts(Key("token_type")));
  LH_TRY(CheckCount(file, "token_type", types.size(), vocabulary.tokens.size()));
  vocabulary.types.reserve(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] < 0 || types[i] > static_cast<int64_t>(TokenType::kByte)) {
      return Refuse(file, fmt::format("token {} has the type {}; types go from 0 to 6", i, types[i]));
    }
    TokenType type = types[i] == 0 ? TokenType::kNormal : static_cast<TokenType>(types[i]);  // 0: not defined
    // Some converters did not know these: a user's text must not hold them, and they end answers.
    if ((type == TokenType::kNormal || type == TokenType::kUserDefined) && IsMarker(vocabulary.tokens[i])) {
      type = TokenType::kControl;
    }
    vocabulary.types.push_back(type);
  }
  return {};
}

Status ReadScores(const GgufFile& file, Vocabulary& vocabulary) {
  LH_ASSIGN(const std::vector<double> scores, file.GetFloats(Key("scores")));
  LH_TRY(CheckCount(file, "scores", scores.size(), vocabulary.tokens.size()));
  vocabulary.scores.assign(scores.begin(), scores.end());
  return {};
}

Status ReadEndOfGeneration(const GgufFile& file, Vocabulary& vocabulary) {
  std::vector<TokenId>& ends = vocabulary.end_of_generation;
  const auto add = [&](TokenId id) {
    if (id != kNoToken && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  add(vocabulary.eos);
  for (const std::string_view name : {"eot_token_id", "eom_token_id"}) {
    LH_ASSIGN(const TokenId id, ReadId(file, name, kNoToken, vocabulary.tokens.size()));
    add(id);
  }
  for (size_t i = 0; i < vocabulary.types.size(); ++i) {
    const bool is_end =
        std::find(std::begin(kEndTexts), std::end(kEndTexts), vocabulary.tokens[i]) != std::end(kEndTexts);
    if (vocabulary.types[i] == TokenType::kControl && is_end) add(static_cast<TokenId>(i));
  }
  return {};
}

}  // namespace

Result<Vocabulary> ReadVocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  LH_ASSIGN(const std::string model, file.GetString(Key("model")));
  if (model != "gpt2" && model != "llama") {
    return Unsupported(fmt::format(
        "{}: the tokenizer \"{}\" is not known here; known are gpt2 (byte-level BPE) and llama (SPM)",
        file.name(), model));
  }
  const bool is_spm = model == "llama";
  vocabulary.model = is_spm ? Vocabulary::Model::kSpm : Vocabulary::Model::kBpe;

  LH_ASSIGN(const std::vector<std::string>* tokens, file.GetStrings(Key("tokens")));
  const size_t n_tokens = tokens->size();
  if (n_tokens > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return Refuse(file, fmt::format("{} tokens are more than ids can number", n_tokens));
  }
  vocabulary.tokens = *tokens;
  LH_TRY(ReadTypes(file, vocabulary));
  if (is_spm) {
    LH_TRY(ReadScores(file, vocabulary));
  } else {
    LH_ASSIGN(const std::vector<std::string>* merges, file.GetStrings(Key("merges")));
    vocabulary.merges = *merges;
    vocabulary.pre_tokenizer = "default";
    if (Has(file, "pre")) {
      LH_ASSIGN(vocabulary.pre_tokenizer, file.GetString(Key("pre")));
    } else if (std::ranges::find(vocabulary.tokens, "<|begin_of_text|>") != vocabulary.tokens.end() &&
               std::ranges::find(vocabulary.tokens, "<|eot_id|>") != vocabulary.tokens.end()) {
      vocabulary.pre_tokenizer = "llama-bpe";  // Llama 3, from before files said so
    }
  }

  const auto spm_default = [&](TokenId id) {
    return is_spm && static_cast<size_t>(id) < n_tokens ? id : kNoToken;
  };
  LH_ASSIGN(vocabulary.bos, ReadId(file, "bos_token_id", spm_default(1), n_tokens));
  LH_ASSIGN(vocabulary.eos, ReadId(file, "eos_token_id", spm_default(2), n_tokens));
  LH_ASSIGN(vocabulary.unknown, ReadId(file, "unknown_token_id", spm_default(0), n_tokens));
  const bool begins_with_bos = is_spm || vocabulary.pre_tokenizer == "llama-bpe";
  LH_ASSIGN(vocabulary.add_bos,
            ReadBool(file, "add_bos_token", begins_with_bos && vocabulary.bos != kNoToken));
  LH_ASSIGN(vocabulary.add_eos, ReadBool(file, "add_eos_token", false));
  LH_ASSIGN(vocabulary.add_space_prefix, ReadBool(file, "add_space_prefix", is_spm));
  LH_TRY(ReadEndOfGeneration(file, vocabulary));
  return vocabulary;
}

Result<std::optional<std::string>> ReadChatTemplateText(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (file.Find(kKey) == nullptr) return std::nullopt;
  LH_ASSIGN(std::string text, file.GetString(kKey));
  return text;
}

}  // namespace longheads
