// What the attention method counted over a text, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"

namespace longheads {

// One line; empty where the method counts nothing.
std::string DescribeCounters(const Engine& engine, const Session& session);
// An object; null where the method counts nothing.
nlohmann::json CountersJson(const Engine& engine, const Session& session);

}  // namespace longheads
