#include "eval/longbench.h"

#include <algorithm>
#include <array>

namespace longheads {

std::span<const LongBenchDataset> LongBenchDatasets() {
  using M = LongBenchMetric;
  static constexpr std::array<LongBenchDataset, 16> kDatasets = {{
      {.name = "narrativeqa", .label = "NQA", .metric = M::kQaF1, .in_e = false},
      {.name = "qasper", .label = "Qspr", .metric = M::kQaF1},
      {.name = "multifieldqa_en", .label = "MulFi", .metric = M::kQaF1},
      {.name = "hotpotqa", .label = "HQA", .metric = M::kQaF1},
      {.name = "2wikimqa", .label = "WMQA", .metric = M::kQaF1},
      {.name = "musique", .label = "Musq", .metric = M::kQaF1, .in_e = false},
      {.name = "gov_report", .label = "GRpt", .metric = M::kRougeL},
      {.name = "qmsum", .label = "QMSM", .metric = M::kRougeL, .in_e = false},
      {.name = "multi_news", .label = "MulN", .metric = M::kRougeL},
      {.name = "trec", .label = "TREC", .metric = M::kClassification, .first_line = true, .plain = true},
      {.name = "triviaqa", .label = "TriQA", .metric = M::kQaF1, .first_line = true, .plain = true},
      {.name = "samsum", .label = "SMSM", .metric = M::kRougeL, .first_line = true, .plain = true},
      {.name = "passage_count", .label = "PsgC", .metric = M::kCount},
      {.name = "passage_retrieval_en", .label = "PsgR", .metric = M::kPassageRetrieval},
      {.name = "lcc", .label = "Lcc", .metric = M::kCodeSimilarity, .plain = true},
      {.name = "repobench-p", .label = "Repo", .metric = M::kCodeSimilarity, .plain = true},
  }};
  return kDatasets;
}

const LongBenchDataset* FindLongBench(std::string_view name) {
  const auto found = std::ranges::find(LongBenchDatasets(), name, &LongBenchDataset::name);
  return found == LongBenchDatasets().end() ? nullptr : &*found;
}

std::string_view LongBenchLengthClass(int64_t n_words) {
  return n_words < 4000 ? "0-4k" : n_words < 8000 ? "4-8k" : "8k+";
}

Result<BenchmarkItem> ReadLongBench(const nlohmann::ordered_json& line, bool by_length) {
  LineReader reader(line);
  BenchmarkItem item;
  item.fields["context"] = reader.Text("context");
  item.fields["input"] = reader.Text("input");
  const std::vector<std::string> answers = reader.Texts("answers");
  if (answers.empty()) reader.Fail("\"answers\" is empty");
  item.references["answers"] = answers;
  const std::vector<std::string> classes = reader.TextsOrNone("all_classes");
  if (!classes.empty()) item.references["all_classes"] = classes;
  if (by_length) {
    const nlohmann::ordered_json& length = reader.Value("length");
    if (length.is_number_integer()) {
      item.cell["words"] = LongBenchLengthClass(length.get<int64_t>());
    } else {
      reader.Fail("\"length\" is no whole number");
    }
  }
  LH_TRY(reader.status());
  return item;
}

double JudgeLongBench(const LongBenchDataset& dataset, const nlohmann::ordered_json& references,
                      std::string_view answer, LongBenchScoring scoring) {
  const auto answers = references.at("answers").get<std::vector<std::string>>();
  const auto classes = references.value("all_classes", std::vector<std::string>());
  return LongBenchScore(dataset.metric, dataset.first_line ? FirstLine(answer) : answer, answers, classes,
                        scoring);
}

}  // namespace longheads
