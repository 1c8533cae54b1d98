// What went between memory and disk, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"

namespace longheads {

// One line; empty where pages stay in memory. `seconds` is how long the engine worked, 0 where nobody knows.
std::string DescribeTraffic(const Engine& engine, double seconds);
// An object with the members of KvTraffic; null where pages stay in memory. Of an engine, what went since it
// was loaded.
nlohmann::json TrafficJson(const KvTraffic& traffic);
nlohmann::json TrafficJson(const Engine& engine);

}  // namespace longheads
