#include "engine/block_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <vector>

#include "kv/disk_speed.h"

namespace longheads {

int64_t BlockParts(double disk_speed, double kv_bytes_per_token, double reading_speed) {
  constexpr double kShareOfTime = 0.2;
  int64_t parts = BlockFit::kMostParts;
  const auto share = [&] {
    return static_cast<double>(parts) * kv_bytes_per_token * reading_speed / disk_speed;
  };
  while (parts > BlockFit::kLeastParts && !(share() <= kShareOfTime)) parts /= 2;
  return parts;
}

Status CheckBlockParts(int64_t parts) {
  if (parts >= BlockFit::kLeastParts && parts <= BlockFit::kMostParts) return {};
  return InvalidInput(fmt::format("--kv-blocks is {}, but must be between {} and {}, or 0", parts,
                                  BlockFit::kLeastParts, BlockFit::kMostParts));
}

bool BlockPartsMatter(const Engine& engine, int64_t n_tokens) {
  if (engine.PlanMemory(n_tokens).disk == 0) return false;  // what is read stays
  const auto block = [&](int64_t parts) { return engine.TokenBlock(n_tokens, parts); };
  return block(BlockFit::kLeastParts) != block(BlockFit::kMostParts);
}

Result<MeasuredBlockParts> MeasureBlockParts(Engine& engine, const CancelToken* cancel) try {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  constexpr int kRepeats = 3;
  LH_ASSIGN(std::vector<double> speeds, MeasureDiskSpeed(engine.kv_folder(), kBytes, kRepeats, cancel));
  std::ranges::sort(speeds);
  MeasuredBlockParts measured = {.disk_speed = speeds[kRepeats / 2]};
  const auto read = [&](int64_t n) -> Result<double> {  // seconds
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(i % engine.config().vocab_size));
    Session session = engine.NewSession();
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    return engine.Prefill(session, tokens, Outputs::kNone, {.cancel = cancel}).map([start](const auto&) {
      return std::chrono::duration<double>(Clock::now() - start).count();
    });
  };
  // What a call costs whatever its tokens are, weights turned to floats, is next to nothing in a large block:
  // the difference of two calls is without it. Before them one that finds weights where they lie, maybe on
  // disk.
  constexpr int64_t kFew = 64, kMore = 320;
  LH_TRY(read(kFew));
  LH_ASSIGN(const double few, read(kFew));
  LH_ASSIGN(const double more, read(kMore));
  measured.reading_speed = static_cast<double>(kMore - kFew) / std::max(more - few, more / 4);
  const KvGeometry& kv = engine.kv_geometry();
  const double bytes = static_cast<double>(kv.PageStride() * kv.n_layers * kv.n_kv_heads) / kPageTokens;
  measured.parts = BlockParts(measured.disk_speed, bytes, measured.reading_speed);
  return measured;
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Engine::OutOfMemory());
} catch (const std::system_error& error) {
  return MakeError(ErrorKind::kOutOfMemory, error.what());  // no thread for the disk
}

int64_t FitBlocksToMemory(Engine& engine, int64_t n_tokens, int64_t parts) {
  BlockFit fit = engine.block_fit();
  fit.parts = parts;
  engine.FitBlocksTo(fit);
  const auto has_room = [&] { return engine.KeepsToRam(n_tokens) && engine.CheckOpening(n_tokens); };
  while (fit.parts < BlockFit::kMostParts && !has_room()) {
    fit.parts *= 2;
    engine.FitBlocksTo(fit);
  }
  return fit.parts;
}

Result<MeasuredBlockParts> FitBlocksToDisk(Engine& engine, int64_t n_tokens, const CancelToken* cancel) {
  LH_ASSIGN(MeasuredBlockParts chosen, MeasureBlockParts(engine, cancel));
  chosen.parts = FitBlocksToMemory(engine, n_tokens, chosen.parts);
  return chosen;
}

}  // namespace longheads
