#include "eval/paper_tables.h"

namespace longheads {

std::span<const PaperTable> RetrievalPaperTables() {
  static const std::vector<PaperTable> tables = {
      {.task = "infinitebench",
       .source = "ESA (2025), table 2",
       .model = "Llama-3-8B-Instruct",
       .setting = "InfiniteBench by the harness of InfLLM",
       .columns = {"kv_retrieval", "math_find", "number_string", "longbook_choice_eng", "code_debug",
                   "passkey"},
       .rows =
           {
               {"Origin", {0, 0, 0, 0, 22.59, 0}, 3.77},
               {"NTK (200k)", {0, 4.86, 0, 0, 22.59, 0}, 4.58},
               {"YaRN (200k)", {0, 34.86, 18.64, 19.65, 11.17, 51.02}, 22.56},
               {"LM-Infinite", {1.8, 14, 6.44, 42.79, 29.95, 6.61}, 16.93},
               {"StreamingLLM", {1.8, 14, 6.61, 44.98, 30.96, 6.78}, 17.52},
               {"InfLLM", {4.8, 14.86, 99.66, 43.23, 30.46, 100}, 48.84},
               {"ESA", {3.4, 16.57, 99.32, 47.16, 32.74, 100}, 49.87},
           }},
      {.task = "infinitebench",
       .source = "ESA (2025), table 2",
       .model = "Mistral-7B-Instruct-v0.2",
       .setting = "InfiniteBench by the harness of InfLLM",
       .columns = {"kv_retrieval", "math_find", "number_string", "longbook_choice_eng", "code_debug",
                   "passkey"},
       .rows =
           {
               {"Origin", {0, 27.43, 27.29, 10.4, 15.51, 75.25}, 36.31},
               {"NTK (200k)", {9.6, 29.43, 90.34, 18.78, 20.81, 100}, 44.83},
               {"YaRN (200k)", {27.8, 25.14, 96.95, 40.61, 21.83, 100}, 52.06},
               {"LM-Infinite", {3.4, 14, 6.78, 38.43, 22.84, 6.78}, 15.37},
               {"StreamingLLM", {3.4, 14.29, 6.78, 37.99, 22.59, 6.78}, 15.31},
               {"InfLLM", {93.4, 26.86, 99.83, 43.23, 27.41, 100}, 65.12},
               {"ESA", {91.6, 26.86, 99.83, 48.03, 34.01, 100}, 66.72},
           }},
      {.task = "infinitebench",
       .source = "ESA (2025), table 5",
       .model = "Mistral-7B-Instruct-v0.2",
       .setting = "proximity",
       .columns = {"kv_retrieval"},
       .rows =
           {
               {"ESA, proximity=0", {66.6}, std::nullopt},
               {"ESA, proximity=1", {82}, std::nullopt},
               {"ESA, proximity=3", {91.6}, std::nullopt},
               {"ESA, proximity=5", {95.6}, std::nullopt},
           }},
      {.task = "counting-stars",
       .source = "ESA (2025), table 3",
       .model = "Llama-3-8B-Instruct",
       .setting = "recall; context, numbers, samples",
       .columns = {"128k,32,32", "256k,8,32", "256k,16,32", "256k,32,32"},
       .rows =
           {
               {"Origin", {5, 2.7, 2, 1.7}, 2.9},
               {"NTK (200k)", {28.5, 16, 16, 15.7}, 19.1},
               {"YaRN (200k)", {8.4, 5.9, 8.2, 7.7}, 7.6},
               {"LM-Infinite", {15.8, 5.1, 11.7, 9.6}, 10.6},
               {"StreamingLLM", {15.7, 5.1, 11.1, 9.6}, 10.4},
               {"InfLLM", {24.2, 10.9, 14.1, 16.2}, 16.4},
               {"ESA", {39.3, 63.7, 44.3, 36.4}, 45.9},
           }},
      {.task = "counting-stars",
       .source = "ESA (2025), table 3",
       .model = "Mistral-7B-Instruct-v0.2",
       .setting = "recall; context, numbers, samples",
       .columns = {"128k,32,32", "256k,8,32", "256k,16,32", "256k,32,32"},
       .rows =
           {
               {"Origin", {15, 5.5, 6.2, 9.8}, 9.1},
               {"NTK (200k)", {35.5, 6.6, 15.2, 16.1}, 18.4},
               {"YaRN (200k)", {52.6, 46.5, 47.3, 41.7}, 47},
               {"LM-Infinite", {10.7, 5.9, 9, 10.9}, 9.1},
               {"StreamingLLM", {10.2, 7, 8.6, 10.9}, 9.2},
               {"InfLLM", {16.1, 2.7, 12.7, 13.3}, 11.2},
               {"ESA", {26.6, 25.8, 16.8, 23.2}, 23.1},
           }},
      {.task = "needlebench",
       .source = "ESA (2025), table 4",
       .model = "Llama-3-8B-Instruct",
       .setting = "multi-needle retrieval, 3 needles",
       .columns = {"4k", "8k", "16k", "48k", "80k", "112k", "128k", "144k", "176k", "200k"},
       .rows =
           {
               {"Origin", {96.67, 100, 0, 0, 0, 0, 0, 0, 0, 0}, 19.67},
               {"NTK (200k)", {90, 100, 96.67, 36.67, 0, 0, 0, 0, 0, 0}, 32.33},
               {"YaRN (200k)", {70, 76.67, 43.33, 0, 0, 0, 0, 0, 0, 0}, 19},
               {"LM-Infinite", {96.67, 73.33, 20, 3.33, 0, 0, 0, 0, 0, 0}, 19.33},
               {"StreamingLLM", {96.67, 73.33, 20, 3.33, 0, 0, 0, 0, 0, 0}, 19.33},
               {"InfLLM", {96.67, 86.67, 23.33, 3.33, 0, 0, 0, 0, 0, 0}, 21},
               {"ESA", {96.67, 100, 86.67, 53.33, 36.67, 43.33, 46.67, 20, 23.33, 23.33}, 53},
           }},
      {.task = "needlebench",
       .source = "ESA (2025), table 4",
       .model = "Mistral-7B-Instruct-v0.2",
       .setting = "multi-needle retrieval, 3 needles",
       .columns = {"4k", "8k", "16k", "48k", "80k", "112k", "128k", "144k", "176k", "200k"},
       .rows =
           {
               {"Origin", {96.67, 80, 73.33, 83.33, 6.67, 0, 0, 0, 0, 0}, 34},
               {"NTK (200k)", {76.67, 73.33, 76.67, 50, 63.33, 73.33, 73.33, 43.33, 0, 0}, 53},
               {"YaRN (200k)", {60, 43.33, 66.67, 53.33, 66.67, 70, 63.33, 66.67, 70, 66.67}, 62.67},
               {"LM-Infinite", {100, 50, 13.33, 0, 0, 0, 0, 0, 0, 0}, 16.33},
               {"StreamingLLM", {100, 53.33, 6.67, 0, 0, 0, 0, 0, 0, 0}, 16},
               {"InfLLM", {100, 63.33, 10, 0, 0, 0, 0, 0, 0, 0}, 17.33},
               {"ESA", {100, 83.33, 73.33, 70, 66.67, 63.33, 60, 63.33, 53.33, 46.67}, 68},
           }},
      {.task = "needlebench",
       .source = "ESA (2025), table 7",
       .model = "Mistral-7B-Instruct-v0.2",
       .setting = "multi-needle retrieval, 3 needles",
       .columns = {"4k", "8k", "16k", "48k", "80k", "112k", "128k", "144k", "176k", "200k"},
       .rows =
           {
               {"ESA, proximity=0", {100, 83.33, 73.33, 80, 70, 60, 66.67, 70, 46.67, 46.67}, 69.67},
               {"ESA, proximity=1", {100, 83.33, 73.33, 86.67, 63.33, 70, 73.33, 56.67, 60, 46.67}, 71.33},
               {"ESA, proximity=3", {100, 83.33, 73.33, 70, 66.67, 63.33, 60, 63.33, 53.33, 46.67}, 68},
               {"ESA, proximity=5", {100, 83.33, 70, 70, 40, 40, 56.67, 36.67, 50, 40}, 58.67},
           }},
  };
  return tables;
}

}  // namespace longheads
