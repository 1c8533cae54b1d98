#include "eval/kld.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eval/experiment.h"
#include "eval/ppl_sample.h"

namespace longheads {
namespace {

constexpr int64_t kMostSamples = 1000;

struct Distribution {
  double most = 0;
  double log_sum = 0;  // of exp(logit - most)
};

Distribution Normalise(std::span<const float> logits) {
  Distribution d{.most = *std::ranges::max_element(logits)};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - d.most);
  d.log_sum = std::log(sum);
  return d;
}

// A text being read by one engine, token by token.
class Reading {
 public:
  explicit Reading(Engine& engine) : engine_(engine), session_(engine.NewSession()) {}

  Status Begin(std::span<const TokenId> prompt, const ForwardControl& control) {
    LH_ASSIGN(hidden_, engine_.Prefill(session_, prompt, Outputs::kLast, control));
    return {};
  }
  Status Feed(TokenId token) {
    Session* const self = &session_;
    return engine_.Decode(std::span(&self, 1), std::span(&token, 1), hidden_);
  }
  std::vector<float> Logits() {
    std::vector<float> logits = engine_.Logits(hidden_);
    logits.resize(engine_.tokenizer().vocabulary().tokens.size());  // the rest is padding
    return logits;
  }

 private:
  Engine& engine_;
  Session session_;
  std::vector<float> hidden_;
};

}  // namespace

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  LH_CHECK(p_logits.size() == q_logits.size() && !p_logits.empty());
  const Distribution p = Normalise(p_logits), q = Normalise(q_logits);
  double sum = 0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p.most - p.log_sum;
    const double log_q = q_logits[i] - q.most - q.log_sum;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return sum < 0 ? 0 : sum;  // what rounding leaves of nothing
}

KldTask::KldTask(Haystack text, KldOptions options) : text_(std::move(text)), options_(std::move(options)) {
  for (int64_t s = 0; s < options_.n_samples; ++s) {
    for (const int64_t length : options_.lengths) {
      samples_.push_back({.id = fmt::format("{}-{}", length, s),
                          .document = fmt::format("piece {}", s),
                          .cell = {{"length", length}},
                          .tokens = 2 * length,  // both read it
                          .longest = length,
                          .number = s});
    }
  }
}

Json KldTask::Setup() const {
  return {{"version", 1},
          {"text", text_.name()},
          {"text_hash", text_.hash()},
          {"score", options_.n_score},
          {"against", options_.against}};
}

Status KldTask::Check(const Engine& engine, PromptForm, const CancelToken*) const {
  const int64_t window = engine.config().trained_window;
  const int64_t longest = *std::ranges::max_element(options_.lengths);
  if (longest <= window) return {};
  return InvalidInput(
      fmt::format("--lengths has {}, but the model was trained on {} tokens: beyond, dense attention is no "
                  "measure (eval ppl "
                  "is)",
                  longest, window));
}

Result<SampleOutcome> KldTask::Measure(const TaskContext& context, const Sample& sample) {
  if (!dense_) {
    LH_ASSIGN(dense_, context.load(options_.against));
  }
  const int64_t length = sample.cell.at("length").get<int64_t>();
  const Vocabulary& vocabulary = context.engine.tokenizer().vocabulary();
  std::vector<TokenId> tokens;
  if (vocabulary.add_bos) tokens.push_back(vocabulary.bos);
  LH_ASSIGN(const std::vector<TokenId> piece,
            text_.Tokens(context.engine.tokenizer(), sample.number,
                         length - static_cast<int64_t>(tokens.size()), context.cancel));
  tokens.insert(tokens.end(), piece.begin(), piece.end());
  const std::size_t n_prompt = tokens.size() - static_cast<std::size_t>(options_.n_score);
  const std::span<const TokenId> prompt = std::span(tokens).first(n_prompt);

  LH_TRY(dense_->ExpectText(length));
  LH_TRY(context.engine.ExpectText(length));
  Reading dense(*dense_), method(context.engine);
  const auto progress = context.on_prefill ? context.on_prefill(2 * static_cast<int64_t>(n_prompt))
                                           : std::function<void(double)>();
  const auto half = [&](double begin) {
    return progress ? std::function<void(double)>([&, begin](double share) { progress(begin + share / 2); })
                    : std::function<void(double)>();
  };
  LH_TRY(dense.Begin(prompt, {.cancel = context.cancel, .progress = half(0)}));
  LH_TRY(method.Begin(prompt, {.cancel = context.cancel, .progress = half(0.5)}));

  double sum = 0, most = 0, dense_nll = 0, method_nll = 0;
  int64_t same_top = 0;
  for (std::size_t i = n_prompt; i < tokens.size(); ++i) {
    if (Cancelled(context.cancel)) return Interrupted();
    if (i > n_prompt) {
      LH_TRY(dense.Feed(tokens[i - 1]));
      LH_TRY(method.Feed(tokens[i - 1]));
    }
    const std::vector<float> p = dense.Logits(), q = method.Logits();
    const double kl = KlDivergence(p, q);
    sum += kl;
    most = std::max(most, kl);
    same_top += ArgMax(p) == ArgMax(q) ? 1 : 0;
    dense_nll += NegativeLogLikelihood(p, tokens[i]);
    method_nll += NegativeLogLikelihood(q, tokens[i]);
  }
  const double n = static_cast<double>(options_.n_score);
  return SampleOutcome{.score = sum / n,
                       .values = {{"kl_max", most},
                                  {"same_top", static_cast<double>(same_top) / n},
                                  {"nll_against", dense_nll / n},
                                  {"nll", method_nll / n}},
                       .tokens = length};
}

TaskKind KldKind() {
  return {
      .name = "kld",
      .summary = "Divergence of a method's predictions from dense attention's, inside the trained window",
      .options = {{"lengths", "N,N,...", "1k,2k,4k", "tokens of text, those compared included; k is 1024"},
                  {"samples", "N", "2", "pieces of the text for each length"},
                  {"score", "S", "128", "how many of the last tokens are compared"},
                  {"against", "SPEC", "full", "the method that the others are compared with"},
                  Haystack::Option()},
      .notes =
          "The score is the mean of KL(dense || method) of the next token, in nats; beside it (--out) stand "
          "the "
          "largest,\nthe share of tokens where both have the same first choice, and both negative "
          "log-likelihoods. Methods that are\nfull attention inside the window give 0 but for rounding "
          "(1e-11 with "
          "--compute f32, some 0.004 with keys in\nbfloat16): have them select early, as below. Two models "
          "are "
          "in memory.\n\nExample:\n  longheads eval kld --attn "
          "'longheads,window=2048,begin=window;streaming-llm,recent=2000' --lengths 4k,8k --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 16;
        KldOptions options{.lengths = o.Counts("lengths", kShortest, kLongestText),
                           .n_samples = o.Count("samples", 1, kMostSamples),
                           .n_score = o.Count("score", 1, kLongestText),
                           .against = o.Text("against")};
        LH_TRY(o.status());
        const int64_t shortest = *std::ranges::min_element(options.lengths);
        if (options.n_score > shortest - 2) {
          return InvalidInput(
              fmt::format("--score is {}, but the shortest of --lengths is {}: at least two tokens "
                          "are read first",
                          options.n_score, shortest));
        }
        LH_ASSIGN(Haystack text, Haystack::Load(o.Text("haystack")));
        return std::make_unique<KldTask>(std::move(text), std::move(options));
      }};
}

}  // namespace longheads
