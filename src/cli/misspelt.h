// What is wrong with a command line, in a sentence: CLI11 knows only that something is left over, or does not convert.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace longheads {

// A sentence about the first command that `program` does not have, or that is missing; empty where it has all of them.
std::string UnknownCommand(const CLI::App& program, std::span<const char* const> arguments);

// A sentence about the first option that the command has not. Where the line cannot be parsed; what follows
// an option that takes a value is no option, whatever it looks like.
std::string UnknownOption(const CLI::App& program, std::span<const char* const> arguments);

// A sentence about anything else for which the line cannot be parsed.
std::string WhatIsWrong(const CLI::ParseError& error, const CLI::App& program);

}  // namespace longheads
