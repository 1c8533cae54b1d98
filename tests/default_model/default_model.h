// The default model for its tests. They are the proof on real weights: where the file is missing they fail.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"

namespace longheads {

// The environment variable LONGHEADS_DEFAULT_MODEL, or where set-up puts the file; as of the first call, also
// where a test has a cache folder of its own since.
std::string DefaultModelPath();

// Ends the test program, with the sentence how to get the file, where it cannot be loaded.
std::unique_ptr<Engine> LoadDefaultModel(const std::string& attention, const std::string& compute);

}  // namespace longheads
