#include "cli/kv_traffic.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace longheads {
namespace {

constexpr double kMuchWaiting = 0.2;

}  // namespace

std::string DescribeTraffic(const Engine& engine, double seconds) {
  const KvTraffic t = engine.kv_traffic();
  if (t.asked() == 0) return "";
  const double share = seconds > 0 ? t.waited_seconds / engine.threads() / seconds : 0;
  return fmt::format(
      "keys and values: {:.1f}% of {} readings of a page found it in memory, {:.1f}% packed; {:.1f}% of "
      "{} pages that plans "
      "named were there already; {} read from disk, {} written; "
      "{} pages came ahead, {:.0f}% of them were used, and {:.0f}% of the {} that the last token foretold; "
      "{} threads waited {:.1f} s in all{}{}",
      100 * t.hit_rate(), t.asked(), 100 * t.packed_rate(), 100 * t.in_memory_when_planned(), t.planned,
      FormatBytes(t.bytes_read), FormatBytes(t.bytes_written), t.read_ahead, 100 * t.used_ahead(),
      100 * t.well_foreseen(), t.foreseen, engine.threads(), t.waited_seconds,
      seconds > 0 ? fmt::format(", {:.1f}% of the time", 100 * share) : "",
      share > kMuchWaiting ? ": a larger --kv-ram or a faster disk makes it less" : "");
}

nlohmann::json TrafficJson(const KvTraffic& t) {
  if (t.asked() == 0) return nullptr;
  return {{"hits", t.hits},
          {"misses", t.misses},
          {"packed", t.packed},
          {"planned", t.planned},
          {"planned_in_memory", t.planned_in_memory},
          {"read_ahead", t.read_ahead},
          {"read_ahead_used", t.read_ahead_used},
          {"landed", t.landed},
          {"foreseen", t.foreseen},
          {"foreseen_used", t.foreseen_used},
          {"bytes_read", t.bytes_read},
          {"bytes_written", t.bytes_written},
          {"waited_seconds", t.waited_seconds}};
}

nlohmann::json TrafficJson(const Engine& engine) { return TrafficJson(engine.kv_traffic()); }

}  // namespace longheads
