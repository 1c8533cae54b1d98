#include "eval/prompt_reader.h"

#include <algorithm>

namespace longheads {
namespace {

int64_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

Result<PromptReader::Prompted> PromptReader::Read(const Prompt& prompt, const CancelToken* cancel,
                                                  const Start& start) {
  const std::span<const TokenId> tokens(prompt.tokens);
  const int64_t n = static_cast<int64_t>(tokens.size());
  // At least the last token is read anew: the answer begins from its hidden state.
  const int64_t unit = share_ ? engine_.CallUnit() : 0;
  int64_t common = unit == 0 ? 0 : std::min(CommonPrefix(tokens, common_.tokens()), n - 1);
  // Behind a call that was cut elsewhere the next ones would not end at multiples of the unit.
  if (common < common_.size() && unit > 1) common = 0;
  const int64_t shared = common;
  const int64_t n_read = n - shared;
  const std::function<void(double)> progress = start ? start(n_read) : std::function<void(double)>();
  const auto control = [&](int64_t from, int64_t to) {
    ForwardControl c{.cancel = cancel, .progress = {}};
    if (progress) {
      const double whole = static_cast<double>(n_read);
      c.progress = [&progress, before = static_cast<double>(from - shared) / whole,
                    part = static_cast<double>(to - from) / whole](double share) {
        progress(before + part * share);
      };
    }
    return c;
  };
  const auto part = [&](int64_t from, int64_t to) {
    return tokens.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
  };

  const int64_t wanted = unit == 0 ? 0 : std::min(prompt.n_common, n - 1) / unit * unit;
  if (wanted > common) {
    // Another text is kept from here on.
    if (common == 0) common_ = engine_.NewSession();
    if (common < common_.size()) LH_TRY(engine_.Truncate(common_, common));
    LH_TRY(engine_.Prefill(common_, part(common, wanted), Outputs::kNone, control(common, wanted)));
    common = wanted;
  }
  Prompted prompted{
      .session = common > 0 ? engine_.Fork(common_) : engine_.NewSession(), .hidden = {}, .shared = shared};
  if (prompted.session.size() > common) LH_TRY(engine_.Truncate(prompted.session, common));
  LH_ASSIGN(prompted.hidden,
            engine_.Prefill(prompted.session, part(common, n), Outputs::kLast, control(common, n)));
  return prompted;
}

}  // namespace longheads
