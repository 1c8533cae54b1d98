#include "eval/haystack.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "eval/text_hash.h"
#include "formats/input_file.h"
#include "formats/line_file.h"

namespace longheads {
namespace {

constexpr std::size_t kShortest = 1000;  // bytes: less is no text to hide anything in

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Van der Corput's sequence: 0, 1/2, 1/4, 3/4, 1/8, ...
double SpreadShare(int64_t number) {
  double share = 0, digit = 0.5;
  for (; number > 0; number /= 2, digit /= 2) share += static_cast<double>(number % 2) * digit;
  return share;
}

Result<std::string> ReadTextsOfLines(const std::string& path) {
  LH_ASSIGN(const LineFile file, LineFile::Open(path));
  std::string text;
  for (int64_t i = 0; i < file.n_lines(); ++i) {
    LH_ASSIGN(const std::string line, file.Line(i));
    try {
      text += ParseJson(line).at("text").get_ref<const std::string&>();
    } catch (const nlohmann::json::exception& error) {
      return InvalidInput(fmt::format(
          "--haystack {} is no object with a 'text' ({}): a *.jsonl must have one in each line, as "
          "NeedleBench's PaulGrahamEssays.jsonl has; give a file that is meant as it is another "
          "ending",
          file.PlaceOf(i), error.what()));
    }
  }
  return text;
}

}  // namespace

TaskOption Haystack::Option() {
  return {.name = "haystack",
          .type = "FILE",
          .standard = "",
          .meaning =
              "the text around it, UTF-8; of a *.jsonl, as NeedleBench has them, the 'text' of each line; "
              "without it, Jane Austen's novels in the cache folder ('sh tools/eval/text.sh austen' writes "
              "them there)"};
}

std::string DefaultHaystackPath() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::string folder =
      cache != nullptr && *cache != '\0' ? cache : std::string(home == nullptr ? "" : home) + "/.cache";
  return folder + "/longheads/austen.txt";
}

Haystack Haystack::FromText(std::string name, std::string text) {
  Haystack haystack;
  haystack.name_ = std::move(name);
  haystack.text_ = std::move(text);
  haystack.hash_ = TextHash(haystack.text_);
  return haystack;
}

Result<Haystack> Haystack::Load(const std::string& path) {
  const std::string file = path.empty() ? DefaultHaystackPath() : path;
  std::error_code error;
  if (path.empty() && !std::filesystem::exists(file, error)) {
    return InvalidInput(
        fmt::format("{0} is not there: 'sh tools/eval/text.sh austen' fetches the default haystack out of a "
                    "Debian package; or name a text of your own with --haystack FILE",
                    file));
  }
  const std::filesystem::path name = std::filesystem::path(file).filename();
  LH_ASSIGN(std::string text, name.extension() == ".jsonl" ? ReadTextsOfLines(file) : ReadUtf8File(file));
  if (text.size() < kShortest) {
    return InvalidInput(fmt::format("--haystack {} has {} bytes of text, but at least {} are needed", file,
                                    text.size(), kShortest));
  }
  return FromText(name.native(), std::move(text));
}

std::string Haystack::Bytes(int64_t number, std::size_t n_bytes) const {
  std::size_t begin = static_cast<std::size_t>(SpreadShare(number) * static_cast<double>(text_.size()));
  if (begin > 0) {
    const std::size_t paragraph = text_.find("\n\n", begin);
    if (paragraph != std::string::npos) begin = std::min(paragraph + 2, text_.size() - 1);
    while (IsContinuation(text_[begin])) --begin;
  }
  std::string bytes;
  while (bytes.size() < n_bytes) {
    bytes += std::string_view(text_).substr(begin, n_bytes - bytes.size());
    begin = 0;
  }
  // A character is there as a whole or not at all.
  std::size_t end = bytes.size();
  while (end > 0 && IsContinuation(bytes[end - 1])) --end;
  if (end > 0 && static_cast<unsigned char>(bytes[end - 1]) >= 0xc0) {
    const std::size_t wanted = std::countl_one(static_cast<unsigned char>(bytes[end - 1]));
    if (bytes.size() - (end - 1) < wanted) bytes.resize(end - 1);
  }
  return bytes;
}

std::vector<std::string> Haystack::Words(int64_t number, std::size_t n_words) const {
  for (std::size_t bytes_per_word = 8;; bytes_per_word *= 2) {
    std::vector<std::string> words;
    // One more than wanted: the last word may be cut.
    std::istringstream in(Bytes(number, (n_words + 1) * bytes_per_word));
    for (std::string word; words.size() <= n_words && in >> word;) words.push_back(std::move(word));
    // A text without any space is one word, however often it begins anew.
    if (words.size() <= n_words && bytes_per_word < text_.size()) continue;
    words.resize(n_words);
    return words;
  }
}

Result<std::vector<TokenId>> Haystack::Tokens(const Tokenizer& tokenizer, int64_t number, int64_t n_tokens,
                                              const CancelToken* cancel) const {
  const std::size_t n = static_cast<std::size_t>(std::max<int64_t>(0, n_tokens));
  for (std::size_t bytes_per_token = 6;; bytes_per_token *= 2) {
    // What the last word becomes depends on what follows: the piece is longer than what is taken.
    LH_ASSIGN(std::vector<TokenId> tokens,
              tokenizer.Encode(Bytes(number, n * bytes_per_token + 1000), {.cancel = cancel}));
    constexpr std::size_t kLastWord = 64;
    if (tokens.size() < n + kLastWord && bytes_per_token < 1000) continue;
    tokens.resize(std::min(tokens.size(), n));
    return tokens;
  }
}

}  // namespace longheads
