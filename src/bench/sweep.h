// Speed against length: how fast each method reads a prompt, and how fast it generates after it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/limits.h"
#include "engine/engine.h"

namespace longheads {

struct SweepOptions {
  std::vector<std::string> attention;  // as --attn takes them
  std::vector<int64_t> lengths;        // of the prompt, tokens
  int64_t n_decode = 32;               // tokens generated after each prompt
  int repeats = 3;
  uint64_t seed = 1;  // of the prompts' tokens, which are drawn anew for each repeat
  // In their place: prompts are pieces of it, and what is generated after them is the text's own next tokens.
  std::string text = {};
  // Where keys and values may go to disk: each prompt and what follows it are also made with all of them in
  // memory, by a second engine, and the tokens of both in turn. What a machine gives changes within seconds,
  // for both alike.
  bool beside_memory = false;
};

struct SweepRow {
  std::string attention;
  int64_t length = 0;
  ComputeType compute = ComputeType::kF32;
  KvType kv_type = KvType::kF32;
  double in_bf16 = 0;        // of the prompt's attention, the share by products of bfloat16
  std::string kernels = {};  // Engine::DescribeKernels
  Measured prefill = {};     // seconds of the whole prompt
  Measured decode = {};  // seconds of one token with vocabulary and choice: of every token of every repeat
  Measured decode_in_memory = {};  // the same with everything in memory; only of SweepOptions::beside_memory
  ComputeCost prefill_cost = {};   // operations of the prompt
  double decode_bytes = 0;         // that a token must read
  // Of all repeats together; nothing where keys and values stay in memory.
  KvTraffic prefill_traffic = {};
  KvTraffic decode_traffic = {};
  uint64_t peak_memory = 0;  // bytes of this process while it ran, weights (and a second engine) included
};

struct SweepHooks {
  std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> load;
  // The same with everything in memory; only for SweepOptions::beside_memory.
  std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> load_in_memory = {};
  std::function<void(const Engine& engine, const std::string& attention)> on_method = {};
  std::function<std::function<void(double)>(const std::string& attention, int64_t length)> on_work = {};
  std::function<void(const SweepRow& row)> on_row = {};
  const CancelToken* cancel = nullptr;
};

// Whether there is something to measure, and every method can be loaded.
Status CheckSweep(const SweepOptions& options, const SweepHooks& hooks);

// Method by method, lengths ascending. `rows` has what was done even where it ends with an error; kCancelled
// where it was interrupted.
Status RunSweep(SweepOptions options, const SweepHooks& hooks, std::vector<SweepRow>& rows);

// Tokens a second.
Measured PrefillSpeed(const SweepRow& row);
Measured DecodeSpeed(const SweepRow& row);
Measured DecodeSpeedInMemory(const SweepRow& row);
// The mean time of a token, in means of the same token's with everything in memory; 0 where that was not
// measured.
double TimeToMemory(const SweepRow& row);

// The share of the time that the machine, at its limits, would have needed: products with weights at the rate
// of the compute type, attention at that of what it computes in, choosing at that of float32; for decode the
// bytes that must be read from memory, or those that came from disk, whichever takes longer.
double PrefillShare(const SweepRow& row, const MachineLimits& limits);
double DecodeShare(const SweepRow& row, const MachineLimits& limits);
// All operations of the prompt, those with weights and those of attention, by the time taken, as a share of
// the rate of bfloat16's products, whatever they were computed in: integers may take it above 1. 0 where the
// processor has no such products.
double Bf16PeakShare(const SweepRow& row, const MachineLimits& limits);

std::string SweepTable(const std::vector<SweepRow>& rows, const MachineLimits& limits);
// With all that the figures depend on beside the machine: the model's file, and how it was loaded
// ("--rope-scale 4").
struct SweepSetup {
  std::string model;
  std::string rope = {};
  std::string text = {};  // the file's name; empty: random tokens
  int64_t n_decode = 0;
  uint64_t seed = 0;
};
std::string SweepCsv(const std::vector<SweepRow>& rows, const MachineLimits& limits, const SweepSetup& setup);
std::string SweepJson(const std::vector<SweepRow>& rows, const MachineLimits& limits,
                      const SweepSetup& setup);

}  // namespace longheads
