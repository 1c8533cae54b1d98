#include "cli/kv_traffic.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace longheads {

std::string DescribeTraffic(const Engine& engine) {
  const KvTraffic t = engine.kv_traffic();
  const uint64_t asked = t.hits + t.misses;
  if (asked == 0) return "";
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  };
  return fmt::format(
      "keys and values: {:.1f}% of {} readings of a page found it in memory; {} read from disk, {} written; "
      "{} pages came "
      "ahead, {:.0f}% of them were used",
      share(t.hits, asked), asked, FormatBytes(t.bytes_read), FormatBytes(t.bytes_written), t.read_ahead,
      share(t.read_ahead_used, t.read_ahead));
}

nlohmann::json TrafficJson(const Engine& engine) {
  const KvTraffic t = engine.kv_traffic();
  if (t.hits + t.misses == 0) return nullptr;
  return {{"hits", t.hits},
          {"misses", t.misses},
          {"read_ahead", t.read_ahead},
          {"read_ahead_used", t.read_ahead_used},
          {"bytes_read", t.bytes_read},
          {"bytes_written", t.bytes_written}};
}

}  // namespace longheads
