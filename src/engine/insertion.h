// A text as the model reads it where the attention method puts tokens into it (Policy::Inserts): those of the
// user, and one that is inserted after every `period` of them, at once when they are complete. All of
// Engine's interface counts the user's; here is what stands between.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "attention/policy.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

class Insertion {
 public:
  Insertion() = default;  // nothing is inserted
  explicit Insertion(const std::optional<InsertedToken>& inserted) : inserted_(inserted) {}

  bool none() const { return !inserted_; }
  // Where there is one.
  const TokenId& token() const { return inserted_->id; }

  // Tokens that the model has read where the user's are n.
  int64_t ModelSize(int64_t n) const { return none() ? n : n + n / inserted_->period; }
  // Whether an inserted token follows the n-th of the user's.
  bool Follows(int64_t n) const { return !none() && n % inserted_->period == 0; }

  // The user's `tokens`, which come after the first `before`, with what is inserted among them and after
  // them.
  std::vector<TokenId> Into(std::span<const TokenId> tokens, int64_t before) const {
    std::vector<TokenId> all;
    for (const TokenId token : tokens) {
      all.push_back(token);
      if (Follows(++before)) all.push_back(inserted_->id);
    }
    return all;
  }

  // Leaves one row of those that the model gave for n tokens after the first `before`: of a token that an
  // inserted one follows, the latter's. It is from there that the text goes on.
  void KeepRowsOfText(std::vector<float>& rows, int64_t before, int64_t n) const {
    if (none()) return;
    const int64_t floats = static_cast<int64_t>(rows.size()) / (ModelSize(before + n) - ModelSize(before));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t from = ModelSize(before + i + 1) - ModelSize(before) - 1;
      std::copy_n(rows.begin() + from * floats, floats, rows.begin() + i * floats);
    }
    rows.resize(static_cast<std::size_t>(n * floats));
  }

 private:
  std::optional<InsertedToken> inserted_;
};

}  // namespace longheads
