#include "engine/block_parts.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>

#include "base/memory.h"
#include "base/raw_file.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

TEST(BlockParts, TakeAFifthOfTheDisksTimeAtMost) {
  // 23 kB a token, 300 tokens a second: 6.9 MB a second for each part.
  EXPECT_EQ(BlockParts(4.5e9, 23e3, 300), 32);
  EXPECT_EQ(BlockParts(32 * 6.9e6 * 5, 23e3, 300), 32);
  EXPECT_EQ(BlockParts(32 * 6.9e6 * 5 - 1e6, 23e3, 300), 16);
  EXPECT_EQ(BlockParts(8 * 6.9e6 * 5, 23e3, 300), 8);
  EXPECT_EQ(BlockParts(1e6, 23e3, 300), 4);
  EXPECT_EQ(BlockParts(0, 23e3, 300), 4);
  EXPECT_EQ(BlockParts(std::nan(""), 23e3, 300), 4);
}

EngineOptions Options(const ModelFile& model) {
  return {.model_path = model.path(),
          .attention = "full",
          .kv_ram = 4 << 20,
          .kv_disk = testing::TempDir(),
          .threads = 2};
}

TEST(BlockParts, AreMeasuredInTheFolderOfThePages) {
  const ModelFile model(TinyLlama(TinyLlamaOptions()));
  const auto engine = *Engine::Load(Options(model));
  const auto measured = MeasureBlockParts(*engine, nullptr);
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_GT(measured->disk_speed, 1e5);
  EXPECT_GT(measured->reading_speed, 1);
  const KvGeometry& kv = engine->kv_geometry();
  const double bytes = static_cast<double>(kv.PageStride() * kv.n_layers * kv.n_kv_heads) / kPageTokens;
  EXPECT_EQ(measured->parts, BlockParts(measured->disk_speed, bytes, measured->reading_speed));
  CancelToken cancel;
  cancel.Cancel();
  const auto stopped = MeasureBlockParts(*engine, &cancel);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
  // Nowhere else.
  class NoPlace : public FileFaults {
   public:
    NoPlace() { InstallFileFaults(this); }
    ~NoPlace() override { InstallFileFaults(nullptr); }
    Verdict Before(const FileOperation& operation) override {
      return {.error = operation.path.starts_with(testing::TempDir()) ? EIO : 0};
    }
  };
  const NoPlace none;
  const auto failed = MeasureBlockParts(*engine, nullptr);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::kIo);
}

TEST(BlockParts, MatterForLongTextsThatMemoryHasRoomFor) {
  const ModelFile model(TinyLlama(TinyLlamaOptions()));
  const auto engine = *Engine::Load(Options(model));
  engine->FitBlocksTo({.ram = int64_t{1} << 40});
  EXPECT_FALSE(BlockPartsMatter(*engine, 3 * Transformer::kTokenBlock));
  EXPECT_TRUE(BlockPartsMatter(*engine, 20 * Transformer::kTokenBlock));
  engine->FitBlocksTo({});  // in the memory for pages there is no room for a larger block
  EXPECT_FALSE(BlockPartsMatter(*engine, 20 * Transformer::kTokenBlock));
}

// A context file gets the same bytes on every machine.
TEST(BlockParts, GiveTheSameBlocksWhateverMultiplies) {
  TinyLlamaOptions tiny;
  tiny.ffn = 64;
  tiny.weight_type = DType::kQ4_1;
  const ModelFile model(TinyLlama(tiny));
  std::vector<int64_t> blocks;
  for (const char* const compute : {"f32", "bf16", "int8", "bf16-int8"}) {
    for (const char* const backend : {"auto", "ref"}) {
      EngineOptions options = Options(model);
      options.compute = compute;
      options.backend = backend;
      const auto engine = *Engine::Load(options);
      engine->FitBlocksTo({.ram = 64 << 20});
      blocks.push_back(engine->TokenBlock(1000 * Transformer::kTokenBlock, BlockFit::kLeastParts));
    }
  }
  EXPECT_GT(blocks[0], 2 * Transformer::kTokenBlock);
  EXPECT_EQ(blocks, std::vector(blocks.size(), blocks[0]));
}

TEST(BlockParts, AreAsFewAsIsAskedForAsFarAsMemoryHasRoom) {
  constexpr int64_t kMany = 200'000;
  const ModelFile model(TinyLlama(TinyLlamaOptions()));
  EngineOptions options = Options(model);
  options.kv_ram = 1 << 30;
  const auto engine = *Engine::Load(options);
  const auto plan = [&](int64_t parts) {
    engine->FitBlocksTo({.parts = parts});
    return engine->PlanMemory(kMany).total();
  };
  const uint64_t in_4 = plan(4), in_8 = plan(8), in_32 = plan(32);
  ASSERT_LT(in_32, in_8);
  ASSERT_LT(in_8, in_4);
  EXPECT_EQ(FitBlocksToMemory(*engine, kMany, 4), 4);
  EXPECT_EQ(engine->block_fit().parts, 4);
  const PretendedMemory little(in_8 + (in_4 - in_8) / 2);
  EXPECT_EQ(FitBlocksToMemory(*engine, kMany, 4), 8);
  EXPECT_EQ(engine->block_fit().parts, 8);
}

TEST(BlockParts, AreManyWhereBlocksAreFittedToMoreThanTheirMemory) {
  constexpr int64_t kMany = 200'000;
  const ModelFile model(TinyLlama(TinyLlamaOptions()));
  const auto engine = *Engine::Load(Options(model));
  engine->FitBlocksTo({.ram = int64_t{1} << 40});
  EXPECT_EQ(FitBlocksToMemory(*engine, kMany, 4), 32);
  const auto of_disk = FitBlocksToDisk(*engine, kMany, nullptr);  // whatever this one gives
  ASSERT_TRUE(of_disk) << of_disk.error().message;
  EXPECT_EQ(of_disk->parts, 32);
  EXPECT_EQ(engine->block_fit().parts, 32);
}

}  // namespace
}  // namespace longheads
