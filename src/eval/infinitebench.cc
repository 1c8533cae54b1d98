#include "eval/infinitebench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scoring/retrieval_scores.h"
#include "scoring/rouge.h"
#include "scoring/token_f1.h"

namespace longheads {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLetters = "ABCD";

// The members that the answer may have: one value, a list of them, or (math_calc) a list in a list.
Json AnswerList(const Json& answer) {
  if (!answer.is_array()) return Json::array({answer});
  if (answer.size() == 1 && answer[0].is_array()) return answer[0];
  return answer;
}

// Keys and values are compared as strings, however the file has them.
std::string AsText(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void ReadOptions(LineReader& reader, BenchmarkItem& item) {
  const std::vector<std::string> options = reader.Texts("options");
  if (options.size() != kLetters.size()) reader.Fail("\"options\" are not four");
  const Json answers = AnswerList(reader.Value("answer"));
  if (!reader.status()) return;
  for (std::size_t i = 0; i < kLetters.size(); ++i) {
    item.fields[fmt::format("OPTION_{}", kLetters[i])] = options[i];
  }
  const std::string answer = answers.empty() ? "" : AsText(answers[0]);
  const auto place = std::ranges::find(options, answer);
  // The letter is given beside the option, or it is the option's place.
  const std::string given = answers.size() == 2 ? AsText(answers[1]) : "";
  if (given.size() == 1 && kLetters.find(given[0]) != std::string_view::npos) {
    item.references["letter"] = given;
  } else if (place != options.end()) {
    item.references["letter"] = std::string(1, kLetters[static_cast<std::size_t>(place - options.begin())]);
  } else {
    reader.Fail("\"answer\" is none of the options");
  }
  item.references["answers"] = {answer};
}

// The first "func_1(2)" or "func_1(-2)".
void ReadCall(const std::string& input, LineReader& reader, BenchmarkItem& item) {
  const auto behind_digits = [&](std::size_t at) {
    return std::min(input.find_first_not_of("0123456789", at), input.size());
  };
  constexpr std::string_view kBefore = "func_";
  for (std::size_t begin = input.find(kBefore); begin != std::string::npos;
       begin = input.find(kBefore, begin + 1)) {
    const std::size_t name_end = behind_digits(begin + kBefore.size());
    if (name_end == begin + kBefore.size() || !input.substr(name_end).starts_with('(')) continue;
    const std::size_t digits = name_end + 1 + (input.substr(name_end + 1).starts_with('-') ? 1 : 0);
    const std::size_t end = behind_digits(digits);
    if (end == digits || !input.substr(end).starts_with(')')) continue;
    item.fields["func"] = input.substr(begin, name_end - begin);
    item.fields["func_call"] = input.substr(begin, end + 1 - begin);
    return;
  }
  reader.Fail("\"input\" names no call as \"func_1(2)\"");
}

// "The largest number of the list is:" asks for the largest number.
void ReadSoughtNumber(const std::string& input, LineReader& reader, BenchmarkItem& item) {
  const std::size_t begin = input.find("The ");
  const std::size_t end = input.rfind(" of");
  if (begin == std::string::npos || end == std::string::npos || end < begin + 4) {
    reader.Fail("\"input\" does not say which number is asked for");
    return;
  }
  std::string sought = input.substr(begin, end - begin);
  std::ranges::transform(sought, sought.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  item.fields["prefix"] = fmt::format("What is {} in the following list?", sought);
  item.fields["prompt"] = item.fields["prefix"];
}

// The key in its quotes, which begins the rest of the input.
void ReadKey(const std::string& input, LineReader& reader, BenchmarkItem& item) {
  const std::size_t begin = input.find('"');
  const std::size_t end = begin == std::string::npos ? begin : input.find('"', begin + 1);
  if (end == std::string::npos) {
    reader.Fail("\"input\" has no key in quotes");
    return;
  }
  item.fields["key"] = input.substr(begin, end + 1 - begin);
}

void ReadAnswers(InfiniteBenchMetric metric, LineReader& reader, BenchmarkItem& item) {
  const Json answers = AnswerList(reader.Value("answer"));
  if (answers.empty() || answers[0].is_null()) reader.Fail("\"answer\" is empty");
  using M = InfiniteBenchMetric;
  const bool whole = metric == M::kReturnedInteger || metric == M::kLeadingValues;
  const bool number = whole || metric == M::kFirstNumber;
  Json& list = item.references["answers"] = Json::array();
  for (const Json& answer : answers) {
    if (number ? !(whole ? answer.is_number_integer() : answer.is_number()) : answer.is_structured()) {
      reader.Fail(number ? "\"answer\" is no number" : "\"answer\" is no string");
    }
    if (number) {
      list.push_back(answer);
    } else {
      list.push_back(AsText(answer));
    }
  }
}

bool FindsNumber(std::string_view answer, const Json& number) {
  return number.is_number_integer() ? FindsInteger(answer, number.get<int64_t>())
                                    : FindsDecimal(answer, number.get<double>());
}

double BestOver(const Json& answers, const auto& score) {
  double best = 0;
  for (const Json& answer : answers) best = std::max(best, static_cast<double>(score(answer)));
  return best;
}

}  // namespace

std::span<const InfiniteBenchDataset> InfiniteBenchDatasets() {
  using M = InfiniteBenchMetric;
  static constexpr std::array<InfiniteBenchDataset, 12> kDatasets = {{
      {"kv_retrieval", "Retrieve.KV", M::kValue, 50, true},
      {"math_find", "Math.Find", M::kFirstNumber, 3, true},
      {"number_string", "Retrieve.Number", M::kFirstInteger, 12, true},
      {"longbook_choice_eng", "En.MC", M::kOption, 40, true},
      {"code_debug", "Code.Debug", M::kCodeDebug, 5, true},
      {"passkey", "Retrieve.PassKey", M::kFirstInteger, 6, true},
      {"longbook_qa_eng", "En.QA", M::kQaF1, 40},
      {"longbook_sum_eng", "En.Sum", M::kRougeLsum, 1200},
      {"longdialogue_qa_eng", "En.Dia", M::kCharacter, 40},
      {"longbook_qa_chn", "Zh.QA", M::kChineseQaF1, 40},
      {"code_run", "Code.Run", M::kReturnedInteger, 5},
      {"math_calc", "Math.Calc", M::kLeadingValues, 30000},
  }};
  return kDatasets;
}

const InfiniteBenchDataset* FindInfiniteBench(std::string_view name) {
  const auto found = std::ranges::find(InfiniteBenchDatasets(), name, &InfiniteBenchDataset::name);
  return found == InfiniteBenchDatasets().end() ? nullptr : &*found;
}

Result<BenchmarkItem> ReadInfiniteBench(const InfiniteBenchDataset& dataset, const Json& line) {
  using M = InfiniteBenchMetric;
  LineReader reader(line);
  BenchmarkItem item;
  item.fields["context"] = reader.Text(reader.Has("content") ? "content" : "context");
  const std::string input = reader.Has("input") ? reader.Text("input") : "";
  item.fields["input"] = input;
  item.fields["question"] = input;
  if (dataset.metric == M::kOption || dataset.metric == M::kCodeDebug) {
    ReadOptions(reader, item);
  } else {
    ReadAnswers(dataset.metric, reader, item);
  }
  if (dataset.metric == M::kReturnedInteger) ReadCall(input, reader, item);
  if (dataset.metric == M::kFirstNumber) ReadSoughtNumber(input, reader, item);
  if (dataset.metric == M::kValue) ReadKey(input, reader, item);
  LH_TRY(reader.status());
  return item;
}

double JudgeInfiniteBench(const InfiniteBenchDataset& dataset, const Json& references,
                          std::string_view answer, InfiniteBenchScoring scoring) {
  using M = InfiniteBenchMetric;
  const Json& answers = references.at("answers");
  const auto letter = [&] { return references.at("letter").get<std::string>().at(0); };
  const auto text = [](const Json& json) { return json.get<std::string>(); };
  switch (dataset.metric) {
    case M::kFirstInteger:
      return BestOver(answers, [&](const Json& a) { return FirstInteger(answer) == text(a); });
    case M::kValue:
      return BestOver(answers, [&](const Json& a) { return NamesValue(answer, text(a)); });
    case M::kOption:
      return ChoosesOption(answer, letter(), text(answers.at(0)), scoring) ? 1 : 0;
    case M::kCodeDebug:
      return CodeDebugScore(answer, letter(), text(answers.at(0)), scoring);
    case M::kFirstNumber:
      return FindsNumber(answer, answers.at(0)) ? 1 : 0;
    case M::kReturnedInteger:
      return ReturnsInteger(answer, answers.at(0).get<int64_t>()) ? 1 : 0;
    case M::kLeadingValues:
      return LeadingValuesScore(answer, answers.get<std::vector<int64_t>>());
    case M::kCharacter:
      return NamesCharacter(answer, text(answers.at(0))) ? 1 : 0;
    case M::kQaF1:
      return BestOver(answers, [&](const Json& a) { return QaF1(answer, text(a)); });
    case M::kChineseQaF1:
      return BestOver(answers, [&](const Json& a) { return ChineseQaF1(answer, text(a)); });
    case M::kRougeLsum:
      return RougeLsum(answer, text(answers.at(0)));
  }
  return 0;
}

}  // namespace longheads
