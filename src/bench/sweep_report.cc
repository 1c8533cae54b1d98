// What a sweep found, for eyes and for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/cores.h"
#include "base/csv.h"
#include "bench/sweep.h"

namespace longheads {
namespace {

bool OnDisk(const SweepRow& row) { return row.prefill_traffic.asked() > 0; }

// That came from disk for one token.
double DiskBytes(const SweepRow& row) {
  const auto bytes = static_cast<double>(row.decode_traffic.bytes_read);
  return row.decode.n == 0 ? 0 : bytes / static_cast<double>(row.decode.n);
}

// What one prompt, of those that were repeated, took of the disk.
struct PromptTraffic {
  uint64_t bytes_read;
  uint64_t bytes_written;
  double waited_seconds;
};
PromptTraffic OfAPrompt(const SweepRow& row) {
  const KvTraffic& all = row.prefill_traffic;
  const auto n = static_cast<uint64_t>(row.prefill.n);
  return {.bytes_read = all.bytes_read / n,
          .bytes_written = all.bytes_written / n,
          .waited_seconds = all.waited_seconds / row.prefill.n};
}

}  // namespace

Measured PrefillSpeed(const SweepRow& row) { return PerSecond(static_cast<double>(row.length), row.prefill); }
Measured DecodeSpeed(const SweepRow& row) { return PerSecond(1, row.decode); }
Measured DecodeSpeedInMemory(const SweepRow& row) { return PerSecond(1, row.decode_in_memory); }
double TimeToMemory(const SweepRow& row) {
  return row.decode_in_memory.n == 0 ? 0 : row.decode.mean / row.decode_in_memory.mean;
}

double PrefillShare(const SweepRow& row, const MachineLimits& limits) {
  const ComputeCost& cost = row.prefill_cost;
  const double seconds = cost.weights / limits.products(row.compute).median +
                         cost.attention * row.in_bf16 / limits.products(ComputeType::kBF16).median +
                         (cost.attention * (1 - row.in_bf16) + cost.choosing) / limits.f32.median;
  return seconds / row.prefill.median;
}

double Bf16PeakShare(const SweepRow& row, const MachineLimits& limits) {
  if (limits.bf16.n == 0) return 0;
  return (row.prefill_cost.weights + row.prefill_cost.attention) / row.prefill.median / limits.bf16.median;
}

double DecodeShare(const SweepRow& row, const MachineLimits& limits) {
  if (row.decode.n == 0) return 0;
  const double from_memory = row.decode_bytes / limits.read.median;
  const double from_disk = limits.disk.n == 0 ? 0 : DiskBytes(row) / limits.disk.median;
  return std::max(from_memory, from_disk) / row.decode.median;
}

std::string SweepTable(const std::vector<SweepRow>& rows, const MachineLimits& limits) {
  std::size_t width = 6;
  for (const SweepRow& row : rows) width = std::max(width, row.attention.size());
  std::string table =
      fmt::format("{:<{}}  {:>7}  {:>24}  {:>8}  {:>12}  {:>24}  {:>8}  {:>9}\n", "method", width, "tokens",
                  "prefill, tokens/s", "of limit", "of bf16 peak", "decode, tokens/s", "of limit", "memory");
  for (const SweepRow& row : rows) {
    const std::string of_peak =
        limits.bf16.n == 0 ? "-" : fmt::format("{:.0f}%", 100 * Bf16PeakShare(row, limits));
    table +=
        fmt::format("{:<{}}  {:>7}  {:>24}  {:>7.0f}%  {:>12}  {:>24}  {:>7.0f}%  {:>9}\n", row.attention,
                    width, row.length, Format(PrefillSpeed(row)), 100 * PrefillShare(row, limits), of_peak,
                    Format(DecodeSpeed(row)), 100 * DecodeShare(row, limits), FormatBytes(row.peak_memory));
  }
  for (const SweepRow& row : rows) {
    if (row.decode_in_memory.n == 0) continue;
    table += fmt::format(
        "{}, {} tokens: a token takes {:.2f} times what it takes with everything in memory, by the means, in "
        "turn with it: {} tokens/s\n",
        row.attention, row.length, TimeToMemory(row), Format(DecodeSpeedInMemory(row)));
  }
  for (const SweepRow& row : rows) {
    if (!OnDisk(row)) continue;
    const KvTraffic& t = row.decode_traffic;
    const PromptTraffic prompt = OfAPrompt(row);
    table += fmt::format(
        "{}, {} tokens: {:.1f}% of readings of a page found it in memory, {:.1f}% packed, {:.1f}% of {} "
        "pages were there when a "
        "plan named them, {} a token came from disk, {:.0f}% of {} pages read ahead were used, and {:.0f}% "
        "of the {} that the last token foretold; the prompt "
        "read {} and wrote {}, and threads waited {:.1f} s for "
        "that\n",
        row.attention, row.length, 100 * t.hit_rate(), 100 * t.packed_rate(),
        100 * t.in_memory_when_planned(), t.planned, FormatBytes(static_cast<uint64_t>(DiskBytes(row))),
        100 * t.used_ahead(), t.read_ahead, 100 * t.well_foreseen(), t.foreseen,
        FormatBytes(prompt.bytes_read), FormatBytes(prompt.bytes_written), prompt.waited_seconds);
  }
  return table;
}

std::string SweepCsv(const std::vector<SweepRow>& rows, const MachineLimits& limits,
                     const SweepSetup& setup) {
  std::string csv =
      "attn,length,compute,kv,repeats,prefill,prefill_low,prefill_high,prefill_share,operations,bf16_share,"
      "decoded,decode,decode_low,decode_high,decode_share,peak_memory,model,rope,text,seed,kernels,processor,"
      "threads,read,products,disk,hit_rate,planned,planned_in_memory,disk_bytes,read_ahead,read_ahead_used,"
      "foreseen,foreseen_used,packed,waited,read_a_prompt,written_a_prompt,waited_a_prompt,decode_in_memory,"
      "time_to_memory\n";
  for (const SweepRow& row : rows) {
    const Measured prefill = PrefillSpeed(row), decode = DecodeSpeed(row);
    csv += fmt::format("{},{},{},{},{},{:.2f},{:.2f},{:.2f},{:.4f},", CsvField(row.attention), row.length,
                       NameOf(row.compute), NameOf(row.kv_type), row.prefill.n, prefill.median, prefill.low,
                       prefill.high, PrefillShare(row, limits));
    const std::string of_peak = limits.bf16.n == 0 ? "" : fmt::format("{:.4f}", Bf16PeakShare(row, limits));
    csv += fmt::format("{:.4g},{},", row.prefill_cost.weights + row.prefill_cost.attention, of_peak);
    csv += fmt::format("{},{:.2f},{:.2f},{:.2f},{:.4f},{},", setup.n_decode, decode.median, decode.low,
                       decode.high, DecodeShare(row, limits), row.peak_memory);
    csv += fmt::format("{},{},{},{},{},{},{},{:.4g},{:.4g},", CsvField(setup.model), CsvField(setup.rope),
                       CsvField(setup.text), setup.seed, CsvField(row.kernels), CsvField(ProcessorName()),
                       limits.threads, limits.read.median, limits.products(row.compute).median);
    if (OnDisk(row)) {
      const KvTraffic& t = row.decode_traffic;
      const PromptTraffic prompt = OfAPrompt(row);
      csv += fmt::format("{:.4g},{:.4f},{},{},{:.0f},{},{},{},{},{},{:.4f},{},{},{:.4f},", limits.disk.median,
                         t.hit_rate(), t.planned, t.planned_in_memory, DiskBytes(row), t.read_ahead,
                         t.read_ahead_used, t.foreseen, t.foreseen_used, t.packed, t.waited_seconds,
                         prompt.bytes_read, prompt.bytes_written, prompt.waited_seconds);
    } else {
      csv += ",,,,,,,,,,,,,,";
    }
    csv += row.decode_in_memory.n == 0
               ? ",\n"
               : fmt::format("{:.2f},{:.4f}\n", DecodeSpeedInMemory(row).median, TimeToMemory(row));
  }
  return csv;
}

std::string SweepJson(const std::vector<SweepRow>& rows, const MachineLimits& limits,
                      const SweepSetup& setup) {
  nlohmann::ordered_json all = {
      {"model", setup.model}, {"rope", setup.rope},
      {"text", setup.text},   {"decoded", setup.n_decode},
      {"seed", setup.seed},   {"limits", nlohmann::json::parse(LimitsJson(limits))}};
  const auto speed = [](const Measured& m) -> nlohmann::ordered_json {
    return {{"median", m.median}, {"mean", m.mean}, {"low", m.low}, {"high", m.high}, {"n", m.n}};
  };
  all["rows"] = nlohmann::ordered_json::array();
  for (const SweepRow& row : rows) {
    all["rows"].push_back(
        {{"attn", row.attention},
         {"length", row.length},
         {"compute", NameOf(row.compute)},
         {"kv", NameOf(row.kv_type)},
         {"kernels", row.kernels},
         {"prefill", speed(PrefillSpeed(row))},
         {"prefill_share", PrefillShare(row, limits)},
         {"operations",
          {{"weights", row.prefill_cost.weights},
           {"attention", row.prefill_cost.attention},
           {"choosing", row.prefill_cost.choosing}}},
         {"bf16_share", limits.bf16.n == 0 ? nlohmann::ordered_json(nullptr)
                                           : nlohmann::ordered_json(Bf16PeakShare(row, limits))},
         {"decode", speed(DecodeSpeed(row))},
         {"decode_share", DecodeShare(row, limits)},
         {"decode_bytes", row.decode_bytes},
         {"attention_in_bf16", row.in_bf16},
         {"peak_memory", row.peak_memory}});
    if (row.decode_in_memory.n > 0) {
      all["rows"].back()["decode_in_memory"] = speed(DecodeSpeedInMemory(row));
      all["rows"].back()["time_to_memory"] = TimeToMemory(row);
    }
    if (OnDisk(row)) {
      all["rows"].back()["decode_traffic"] = {{"hit_rate", row.decode_traffic.hit_rate()},
                                              {"packed_rate", row.decode_traffic.packed_rate()},
                                              {"planned", row.decode_traffic.planned},
                                              {"planned_in_memory", row.decode_traffic.planned_in_memory},
                                              {"disk_bytes_a_token", DiskBytes(row)},
                                              {"read_ahead", row.decode_traffic.read_ahead},
                                              {"read_ahead_used", row.decode_traffic.read_ahead_used},
                                              {"foreseen", row.decode_traffic.foreseen},
                                              {"foreseen_used", row.decode_traffic.foreseen_used},
                                              {"waited_seconds", row.decode_traffic.waited_seconds}};
      const PromptTraffic prompt = OfAPrompt(row);
      all["rows"].back()["prefill_traffic"] = {{"disk_bytes_read_a_prompt", prompt.bytes_read},
                                               {"disk_bytes_written_a_prompt", prompt.bytes_written},
                                               {"waited_seconds_a_prompt", prompt.waited_seconds}};
    }
  }
  return all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace longheads
