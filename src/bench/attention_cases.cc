// Attention of a prompt's rows over pages, and of a generated token's: operations a second, four for each
// element of a key that a row sees (its logit and its value), beside oneDNN's products of the type that is
// multiplied. Of a token's rows over more pages than caches hold: bytes of pages, beside reading from memory.
// What the softmax gives each key takes two operations, without its value; merged states are bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"
#include "base/memory.h"
#include "bench/kernel_case.h"
#include "kernels/attention.h"
#include "kernels/vector_ops.h"

namespace longheads {
namespace {

// Keys and values of few bits, the same numbers as pages of float32, bfloat16, packed or not, and eight bits
// hold them, and rows that see all of them.
struct Pages {
  static constexpr float kScale = 1.0f / 32;
  static constexpr auto kLine = static_cast<int64_t>(kCacheLine);
  int64_t d, n_rows, n_pages;
  std::vector<double> theta;
  RotationTable table;
  Buffer<float> floats, q;  // floats: each page K [kMaxRun, d], then V [d, kMaxRun]
  Buffer<BFloat16> bfloats;
  Buffer<int8_t> bytes;
  std::vector<float> scales = std::vector<float>(kMaxRun, kScale);
  std::vector<Bf16Page> pages;
  PackedBf16Places places{d};
  int64_t rest_stride = (places.rest_bytes() + kLine - 1) / kLine * kLine;
  Buffer<std::byte> words, rest;  // of packed pages

  Pages(int64_t head_dim, int64_t rows, int64_t of_pages)
      : d(head_dim),
        n_rows(rows),
        n_pages(of_pages),
        theta(Theta(head_dim)),
        table(theta, d, PairLayout::kInterleaved, 40000),
        floats(n_pages * 2 * kMaxRun * d),
        q(n_rows * d),
        bfloats(floats.size()),
        bytes(floats.size()),
        words(n_pages * places.words_bytes),
        rest(n_pages * rest_stride) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < floats.size(); ++i) {
      bytes[i] = static_cast<int8_t>(std::clamp(normal(random) / kScale, -127.0f, 127.0f));
      // Some three of a page's numbers stand apart, as in a text's: with many it could not be packed.
      const int64_t third = 2 * kMaxRun * d / 3;
      bytes[i] = i % third == third / 2 ? int8_t{0} : bytes[i] != 0 ? bytes[i] : int8_t{1};
      floats[i] = bytes[i] * kScale;
    }
    for (int64_t i = 0; i < q.size(); ++i) q[i] = normal(random);
    FastestVectorKernels().to_bf16(floats.data(), floats.size(), bfloats.data());
    for (int64_t page = 0; page < n_pages; ++page) {
      const BFloat16* const k = bfloats.data() + page * 2 * kMaxRun * d;
      pages.push_back({.k = k, .v = k + kMaxRun * d});
      LH_CHECK(FastestVectorKernels().pack_bf16(
          k, d, {words.data() + page * places.words_bytes, rest.data() + page * rest_stride}));
    }
  }

  static std::vector<double> Theta(int64_t d) {
    std::vector<double> theta;
    for (int64_t m = 0; m < d / 2; ++m)
      theta.push_back(std::pow(10000.0, -2.0 * static_cast<double>(m) / static_cast<double>(d)));
    return theta;
  }

  std::vector<RotatedRow> Rows(Buffer<float>& states, int64_t n_keys) const {
    std::vector<RotatedRow> rows;
    for (int64_t r = 0; r < n_rows; ++r) {
      ClearState(states.data() + r * StateFloats(d), d);
      rows.push_back({.q = q.data() + r * d,
                      .x = 30000 + r,
                      .scale = 1 / std::sqrt(static_cast<float>(d)),
                      .key_begin = 0,
                      .key_end = static_cast<int32_t>(n_keys),
                      .state = states.data() + r * StateFloats(d)});
    }
    return rows;
  }
  template <typename T>
  KeyRunOf<T> Run(const T* page, const T* next = nullptr) const {
    return {.k = page,
            .v = page + kMaxRun * d,
            .v_stride = kMaxRun,
            .n_keys = kMaxRun,
            .head_dim = d,
            .next = next};
  }
  PackedKeyRun PackedRun(int64_t page, int64_t next) const {
    return {.page = {words.data() + page * places.words_bytes, rest.data() + page * rest_stride},
            .n_keys = kMaxRun,
            .head_dim = d,
            .next = words.data() + next * places.words_bytes};
  }
  void FetchRest(int64_t page) const {
    for (int64_t at = 0; at < rest_stride; at += kLine) {
      __builtin_prefetch(rest.data() + page * rest_stride + at);
    }
  }
  Q8KeyRun Run(const int8_t* page, const int8_t* next) const {
    return {Run<int8_t>(page, next), scales.data(), scales.data()};
  }
  std::vector<float> Finish(const Buffer<float>& states) const {
    std::vector<float> out(static_cast<std::size_t>(n_rows * d));
    for (int64_t r = 0; r < n_rows; ++r)
      FinishState(states.data() + r * StateFloats(d), d, out.data() + r * d);
    return out;
  }
  double Operations() const { return 4.0 * static_cast<double>(n_rows * n_pages * kMaxRun * d); }
};

constexpr int64_t kFromMemory = 2048;  // pages: more than caches hold

enum class Kernel : uint8_t {
  kAttend,
  kAttendBf16,
  kAttendFew,
  kAttendFewBf16,
  kAttendFewPacked,
  kAttendFewQ8
};

void Attend(benchmark::State& state, const KernelCases& cases, const AttentionKernels* kernels,
            Kernel kernel) {
  const Pages c(state.range(0), state.range(1), state.range(2));
  const AttentionKernels& reference = *AttentionImplementations().back().table;
  Buffer<float> states(c.n_rows * StateFloats(c.d)), of_reference(states.size());
  Buffer<float> workspace(
      std::max(AttendWorkspace(kernels->row_tile, c.d), AttendWorkspace(reference.row_tile, c.d)));
  // In an order that no processor foresees, as chosen chunks lie.
  const auto index = [&](int64_t i) {
    constexpr int64_t kStep = 769;  // a prime: every page comes once
    return i * kStep % c.n_pages;
  };
  const auto page_by_page = [&](auto attend, const auto* pages, std::span<const RotatedRow> rows) {
    const auto page = [&](int64_t i) { return pages + index(i) * 2 * kMaxRun * c.d; };
    for (int64_t i = 0; i < c.n_pages; ++i) {
      attend(rows, c.Run(page(i), page(i + 1)), c.table, workspace.data());
    }
  };
  page_by_page(reference.attend, c.floats.data(), c.Rows(of_reference, kMaxRun));

  const bool together = kernel == Kernel::kAttendBf16;
  const std::vector<RotatedRow> rows = c.Rows(states, together ? c.n_pages * kMaxRun : kMaxRun);
  const auto once = [&] {
    switch (kernel) {
      case Kernel::kAttend:
        return page_by_page(kernels->attend, c.floats.data(), rows);
      case Kernel::kAttendBf16:
        return kernels->attend_bf16(rows, {.pages = c.pages, .n_keys = c.n_pages * kMaxRun, .head_dim = c.d},
                                    c.table, workspace.data());
      case Kernel::kAttendFew:
        return page_by_page(kernels->attend_few, c.floats.data(), rows);
      case Kernel::kAttendFewBf16:
        return page_by_page(kernels->attend_few_bf16, c.bfloats.data(), rows);
      case Kernel::kAttendFewPacked:
        for (int64_t i = 0; i < c.n_pages; ++i) {
          const auto run = c.PackedRun(index(i), index(i + 1));
          c.FetchRest(index(i + 1));  // as KvPool::Peek does
          kernels->attend_few_packed(rows, run, c.table, workspace.data());
        }
        return;
      case Kernel::kAttendFewQ8:
        return page_by_page(kernels->attend_few_q8, c.bytes.data(), rows);
    }
  };
  once();
  // Far above the roundings of each (the tests derive those: kernels/attention_test.cc), far below a wrong
  // key.
  const double bound = together ? 2e-2 : 1e-4;
  if (!KernelCases::IsRight(state, c.Finish(states), c.Finish(of_reference), bound)) return;
  // States go on from what they are: the same work.
  if (c.n_pages == kFromMemory) {
    const double bytes = kernel == Kernel::kAttendFewQ8       ? 1
                         : kernel == Kernel::kAttendFewPacked ? 1.5
                         : kernel == Kernel::kAttendFew       ? 4
                                                              : 2;
    return cases.Time(state, KernelUnit::kBytes, static_cast<double>(c.floats.size()) * bytes,
                      cases.ReadLimit(1), once);
  }
  cases.Time(state, KernelUnit::kOperations, c.Operations(),
             cases.ProductLimit(together ? ComputeType::kBF16 : ComputeType::kF32), once);
}

enum class Mass : uint8_t { kOfAll, kFew, kFewBf16 };

// What the softmax gives each key, of rows whose largest logits and sums are known.
void ColumnMass(benchmark::State& state, const KernelCases& cases, const AttentionKernels* kernels,
                Mass kind) {
  const Pages c(state.range(0), state.range(1), state.range(2));
  const AttentionKernels& reference = *AttentionImplementations().back().table;
  Buffer<float> workspace(
      std::max(AttendWorkspace(kernels->row_tile, c.d), AttendWorkspace(reference.row_tile, c.d)));
  const bool few = kind != Mass::kOfAll;
  const auto mass_by = [&](const AttentionKernels& by, std::span<const RotatedRow> rows, Mass of,
                           std::vector<float>& mass) {
    for (int64_t page = 0; page < c.n_pages; ++page) {
      const int64_t at = page * 2 * kMaxRun * c.d;
      float* const to = mass.data() + page * kMaxRun * (few ? c.n_rows : 1);
      if (of == Mass::kOfAll)
        by.column_mass(rows, c.Run(c.floats.data() + at), c.table, to, workspace.data());
      if (of == Mass::kFew)
        by.column_mass_few(rows, c.Run(c.floats.data() + at), c.table, to, workspace.data());
      if (of == Mass::kFewBf16)
        by.column_mass_few_bf16(rows, c.Run(c.bfloats.data() + at), c.table, to, workspace.data());
    }
  };
  // Rows that know what they attended to, by an implementation of which each has units of its own.
  const auto rows_of = [&](const AttentionKernels& by, Buffer<float>& states) {
    std::vector<RotatedRow> rows = c.Rows(states, kMaxRun);
    for (int64_t page = 0; page < c.n_pages; ++page) {
      by.attend(rows, c.Run(c.floats.data() + page * 2 * kMaxRun * c.d), c.table, workspace.data());
    }
    for (RotatedRow& row : rows) row.state += c.d;  // the largest logit and the sum
    return rows;
  };
  Buffer<float> states(c.n_rows * StateFloats(c.d)), of_reference(states.size());
  const std::vector<RotatedRow> rows = rows_of(*kernels, states);
  std::vector<float> mass(static_cast<std::size_t>(c.n_pages * kMaxRun * (few ? c.n_rows : 1)));
  std::vector<float> expected(mass.size());
  mass_by(reference, rows_of(reference, of_reference), few ? Mass::kFew : Mass::kOfAll, expected);
  mass_by(*kernels, rows, kind, mass);
  // Far below what one of a thousand keys gets of a row.
  if (!KernelCases::IsRight(state, mass, expected, few ? 1e-6 : 1e-4)) return;
  cases.Time(state, KernelUnit::kOperations, c.Operations() / 2, cases.ProductLimit(ComputeType::kF32),
             [&] { mass_by(*kernels, rows, kind, mass); });
}

// Partial states of as many rows, from cache: bytes read and written.
void Merge(benchmark::State& state, const KernelCases& cases, const AttentionKernels* kernels) {
  const Pages c(state.range(0), state.range(1), 2);
  const int64_t floats = StateFloats(c.d);
  // One page's states merged into the other's, both of the implementation, which has units of its own.
  struct Merged {
    Buffer<float> into, from;
  };
  const auto merge = [&](const AttentionKernels& by, Merged& states) {
    for (int64_t at = 0; at < states.into.size(); at += floats) {
      by.merge(states.into.data() + at, states.from.data() + at, c.d);
    }
  };
  const auto merged_by = [&](const AttentionKernels& by) {
    Merged states{Buffer<float>(c.n_rows * floats), Buffer<float>(c.n_rows * floats)};
    Buffer<float> workspace(AttendWorkspace(by.row_tile, c.d));
    const float* page = c.floats.data();
    for (Buffer<float>* const of_page : {&states.into, &states.from}) {
      by.attend(c.Rows(*of_page, kMaxRun), c.Run(page), c.table, workspace.data());
      page += 2 * kMaxRun * c.d;
    }
    merge(by, states);
    return states;
  };
  Merged states = merged_by(*kernels);
  const Merged expected = merged_by(*AttentionImplementations().back().table);
  if (!KernelCases::IsRight(state, c.Finish(states.into), c.Finish(expected.into), 1e-4)) return;
  cases.Time(state, KernelUnit::kBytes, 3.0 * sizeof(float) * static_cast<double>(states.into.size()),
             cases.ReadLimit(1), [&] { merge(*kernels, states); });
}

constexpr int64_t kChunksFromMemory = 1 << 18;  // more than caches hold

// The choice of chunks: a token's queries of a KV head, or a step's of a prompt, beside the representations
// of 128k tokens; of more chunks than caches hold, bytes of representations.
void Score(benchmark::State& state, const KernelCases& cases, const AttentionKernels* kernels, bool columns) {
  constexpr int64_t kHeadDim = 64;
  const int64_t n_rows = state.range(0), n = state.range(1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Buffer<float> q(n_rows * kHeadDim), vectors(n * kHeadDim), out(n_rows * n), expected(out.size());
  for (int64_t i = 0; i < q.size(); ++i) q[i] = normal(random);
  for (int64_t i = 0; i < vectors.size(); ++i) vectors[i] = normal(random);
  std::vector<const float*> rows;
  for (int64_t row = 0; row < n_rows; ++row) rows.push_back(q.data() + row * kHeadDim);
  const AttentionKernels& reference = *AttentionImplementations().back().table;
  Buffer<float> workspace(
      std::max(AttendWorkspace(kernels->row_tile, kHeadDim), AttendWorkspace(reference.row_tile, kHeadDim)));
  Buffer<float> turned(columns ? vectors.size() : 0);
  for (int64_t i = 0; i < turned.size(); ++i) {
    const int64_t chunk = i / kHeadDim, at = i % kHeadDim;
    const int64_t first = chunk / kScoredTogether * kScoredTogether;
    turned[first * kHeadDim + at * kScoredTogether + chunk - first] = vectors[i];
  }
  const auto score = [&](const AttentionKernels& by, Buffer<float>& to) {
    if (!columns) return by.scores(rows, vectors.data(), n, kHeadDim, to.data(), n, workspace.data());
    for (int64_t first = 0; first < n; first += kScoredTogether) {
      by.scores_of_columns(rows, turned.data() + first * kHeadDim, 0, kScoredTogether, kHeadDim,
                           to.data() + first, n, workspace.data());
    }
  };
  score(reference, expected);
  score(*kernels, out);
  const auto all = static_cast<std::size_t>(out.size());
  if (!KernelCases::IsRight(state, std::span(out.data(), all), std::span(expected.data(), all), 1e-4)) return;
  const auto once = [&] { score(*kernels, out); };
  if (n == kChunksFromMemory) {
    return cases.Time(state, KernelUnit::kBytes, static_cast<double>(vectors.size()) * sizeof(float),
                      cases.ReadLimit(1), once);
  }
  cases.Time(state, KernelUnit::kOperations, 2.0 * static_cast<double>(n_rows * n * kHeadDim),
             cases.ProductLimit(ComputeType::kF32), once);
}

}  // namespace

void AddAttentionCases(KernelCases& cases) {
  for (const auto& implementation : AttentionImplementations()) {
    if (!implementation.declined.empty() || implementation.name == "ref") continue;
    const AttentionKernels* const kernels = implementation.table;
    const auto name_of = [&](const char* operation) {
      return fmt::format("{}/{}", operation, implementation.name);
    };
    const auto add = [&](const char* operation, Kernel kernel, std::vector<std::vector<int64_t>> shapes) {
      cases.Add(
          name_of(operation), {.names = {"head_dim", "rows", "pages"}, .values = std::move(shapes)},
          [&cases, kernels, kernel](benchmark::State& state) { Attend(state, cases, kernels, kernel); });
    };
    add("attend", Kernel::kAttend, {{64, 480, 8}, {64, 48, 1}, {128, 480, 8}});
    if (kernels->attend_bf16 != nullptr)
      add("attend_bf16", Kernel::kAttendBf16, {{64, 480, 8}, {64, 480, 1}, {64, 48, 1}, {128, 480, 8}});
    add("attend_few", Kernel::kAttendFew, {{64, 1, 8}, {64, 3, 8}});
    const std::vector<std::vector<int64_t>> few = {
        {64, 1, 8}, {64, 3, 8}, {128, 8, 8}, {64, 1, kFromMemory}, {64, 3, kFromMemory}};
    add("attend_few_bf16", Kernel::kAttendFewBf16, few);
    add("attend_few_packed", Kernel::kAttendFewPacked, few);
    add("attend_few_q8", Kernel::kAttendFewQ8, few);
    const auto add_mass = [&](const char* operation, Mass kind, std::vector<int64_t> shape) {
      cases.Add(
          name_of(operation), {.names = {"head_dim", "rows", "pages"}, .values = {std::move(shape)}},
          [&cases, kernels, kind](benchmark::State& state) { ColumnMass(state, cases, kernels, kind); });
    };
    add_mass("column_mass", Mass::kOfAll, {64, 480, 8});
    add_mass("column_mass_few", Mass::kFew, {64, 3, 8});
    add_mass("column_mass_few_bf16", Mass::kFewBf16, {64, 3, 8});
    cases.Add(name_of("merge"), {.names = {"head_dim", "rows"}, .values = {{64, 512}}},
              [&cases, kernels](benchmark::State& state) { Merge(state, cases, kernels); });
    cases.Add(
        name_of("scores"), {.names = {"rows", "chunks"}, .values = {{1, 512}, {3, 512}, {480, 512}}},
        [&cases, kernels](benchmark::State& state) { Score(state, cases, kernels, /*columns=*/false); });
    cases.Add(name_of("scores_of_columns"),
              {.names = {"rows", "chunks"},
               .values = {{1, 512}, {3, 512}, {480, 512}, {1, kChunksFromMemory}, {8, kChunksFromMemory}}},
              [&cases, kernels](benchmark::State& state) { Score(state, cases, kernels, /*columns=*/true); });
  }
}

}  // namespace longheads
