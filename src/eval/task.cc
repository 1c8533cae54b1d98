#include "eval/task.h"

#include <algorithm>

#include "eval/experiment.h"

namespace longheads {

std::size_t AnswerEnd(const std::string& answer, const std::vector<std::string>& stops) {
  const std::size_t begin = answer.find_first_not_of(" \t\r\n");
  std::size_t end = answer.size();
  if (begin == std::string::npos) return end;
  for (const std::string& stop : stops) end = std::min(end, answer.find(stop, begin));
  return end;
}

Result<GreedyAnswer> AnswerGreedily(Engine& engine, PromptReader::Prompted& prompted,
                                    const Question& question, const CancelToken* cancel) {
  std::string so_far;
  GenerateOptions options{.max_tokens = question.max_new, .cancel = cancel};
  if (!question.stops.empty()) {
    options.on_token = [&](TokenId, std::string_view text) {
      so_far += text;
      return AnswerEnd(so_far, question.stops) == so_far.size();
    };
  }
  LH_ASSIGN(Generated generated, engine.Generate(prompted.session, prompted.hidden, options));
  if (generated.reason == StopReason::kCancelled) return Interrupted();
  generated.text.resize(AnswerEnd(generated.text, question.stops));
  return GreedyAnswer{.text = std::move(generated.text),
                      .n_tokens = static_cast<int64_t>(generated.tokens.size())};
}

Status QuestionTask::Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const {
  const Sample* shortest = nullptr;
  for (const Sample& sample : samples()) {
    if (sample.tokens > 0 && (shortest == nullptr || sample.tokens < shortest->tokens)) shortest = &sample;
  }
  if (shortest != nullptr) LH_TRY(Ask(engine, form, *shortest, cancel));
  return {};
}

Result<SampleOutcome> QuestionTask::Measure(const TaskContext& context, const Sample& sample) {
  Engine& engine = context.engine;
  LH_ASSIGN(Question question, Ask(engine, context.form, sample, context.cancel));
  const PromptForm form = question.plain ? PromptForm::kPlain : context.form;
  LH_ASSIGN(Prompt prompt, EncodePromptText(engine, form, question.text, context.cancel));
  if (sample.document.empty()) prompt.n_common = 0;
  const int64_t n_tokens = static_cast<int64_t>(prompt.tokens.size());
  LH_ASSIGN(const bool changed, engine.ExpectText(n_tokens + question.max_new));
  if (changed) context.reader.Forget();
  LH_ASSIGN(PromptReader::Prompted prompted, context.reader.Read(prompt, context.cancel, context.on_prefill));
  LH_ASSIGN(GreedyAnswer answer, AnswerGreedily(engine, prompted, question, context.cancel));
  Score score = Judge(question, answer.text);
  return SampleOutcome{.score = score.value,
                       .values = std::move(score.values),
                       .answer = std::move(answer.text),
                       .references = std::move(question.references),
                       .tokens = n_tokens,
                       .shared = prompted.shared,
                       .generated = answer.n_tokens};
}

}  // namespace longheads
