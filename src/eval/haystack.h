// The long text that an experiment hides something in: a user's file, or the novels that tools/eval/text.sh
// fetches out of a Debian package. What is hidden, and where, is the experiment's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "eval/task_options.h"

namespace longheads {

class Haystack {
 public:
  // The option by which the user names one.
  static TaskOption Option();

  // The file, or the default haystack where `path` is empty: the message says how to get it. Of a *.jsonl,
  // NeedleBench's official form, the `text` of each line, one after the other with nothing between, as its
  // program (opencompass/datasets/needlebench/parallel.py) joins them; it shuffles them before each repeat.
  static Result<Haystack> Load(const std::string& path);
  static Haystack FromText(std::string name, std::string text);

  const std::string& name() const { return name_; }  // without its folder
  // TextHash of the text. Of a *.jsonl not of the file: what models read is what results are of, however its
  // JSON is written.
  const std::string& hash() const { return hash_; }

  // So many bytes of the text from where its piece `number` begins; behind the end it begins anew. Pieces
  // begin at paragraphs: 0 at the text's beginning, the others spread over it (at 1/2, 1/4, 3/4, 1/8, ...),
  // wherever how many there are.
  std::string Bytes(int64_t number, std::size_t n_bytes) const;

  // The first n_words words of a piece, as white space parts them.
  std::vector<std::string> Words(int64_t number, std::size_t n_words) const;

  // The first n_tokens tokens of a piece.
  Result<std::vector<TokenId>> Tokens(const Tokenizer& tokenizer, int64_t number, int64_t n_tokens,
                                      const CancelToken* cancel) const;

 private:
  Haystack() = default;

  std::string name_, text_, hash_;
};

// Where text.sh puts the default haystack.
std::string DefaultHaystackPath();

}  // namespace longheads
