#include "attention/state_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace longheads {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

void StateWriter::Append(const void* data, std::size_t n) {
  const std::byte* const bytes = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), bytes, bytes + n);
}

void StateWriter::Text(std::string_view text) {
  Int(static_cast<int64_t>(text.size()));
  Append(text.data(), text.size());
}

bool StateReader::Has(int64_t n, int64_t element_bytes) {
  if (failed()) return false;
  if (n <= static_cast<int64_t>(bytes_.size()) / element_bytes) return true;
  Fail("it ends too early");
  return false;
}

void StateReader::Copy(void* to, std::size_t n) {
  if (n == 0 || !Has(static_cast<int64_t>(n), 1)) return;
  std::memcpy(to, bytes_.data(), n);
  bytes_ = bytes_.subspan(n);
}

int64_t StateReader::Int(int64_t least, int64_t most) {
  int64_t value = least;
  Copy(&value, sizeof value);
  if (value >= least && value <= most) return value;
  Fail(fmt::format("it holds {} where {} to {} can be", value, least, most));
  return least;
}

std::string_view StateReader::Text() {
  const int64_t n = Int(0, std::numeric_limits<int64_t>::max());
  if (!Has(n, 1)) return {};
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::size_t>(n));
  bytes_ = bytes_.subspan(text.size());
  return text;
}

void StateReader::Fail(std::string why) {
  if (!failed()) error_ = std::move(why);
}

void StateReader::Finish() {
  if (!bytes_.empty()) Fail(fmt::format("it has {} bytes too many", bytes_.size()));
}

void VectorBlocks::Write(const SharedBlocks& blocks, int64_t begin, int64_t end, StateWriter& out) const {
  for (int64_t at = begin; at < end; ++at) {
    out.Floats({blocks[at / together] + at % together * floats, static_cast<std::size_t>(floats)});
  }
}

void VectorBlocks::Read(StateReader& in, int64_t begin, int64_t end, SharedBlocks& blocks) const {
  if (!in.Has(end - begin, floats * static_cast<int64_t>(sizeof(float)))) return;
  blocks.Resize(BlocksFor(end));
  for (int64_t at = begin; at < end; ++at) {
    float* const block = blocks.Mutable(at / together);
    in.Floats({block + at % together * floats, static_cast<std::size_t>(floats)});
  }
}

namespace {

// Positions are 32-bit numbers in plans.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// For a sentence: what stands in a damaged file may be anything.
std::string Quoted(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return plain && text.size() <= 200 ? fmt::format("'{}'", text) : "something else";
}

// Each part says itself what it is of: a file may hold parts of several programs.
void CheckLayout(const PolicyState& state, StateReader& in) {
  const std::string expected = state.Layout();
  const std::string_view found = in.Text();
  if (!in.failed() && found != expected) {
    in.Fail(fmt::format(
        "it was saved as {}, but is kept as '{}': the method's options, the model or the program's "
        "version are not those that saved it",
        Quoted(found), expected));
  }
}

}  // namespace

SavedState SaveState(const PolicyState& state, int64_t from, int64_t n) {
  LH_CHECK(0 <= from && from <= n && n <= kMostTokens);
  StateWriter added, latest;
  added.Text(state.Layout());
  added.Int(from);
  added.Int(n);
  latest.Text(state.Layout());
  latest.Int(n);
  state.Save(from, n, added, latest);
  return {.added = added.Take(), .latest = latest.Take()};
}

Result<std::unique_ptr<PolicyState>> RestoreState(const PolicyState& fresh,
                                                  std::span<const std::span<const std::byte>> added,
                                                  std::span<const std::byte> latest, int64_t n) {
  const auto refuse = [](const StateReader& in) {
    return InvalidInput(fmt::format("the saved state of the attention method does not fit: {}", in.error()));
  };
  std::unique_ptr<PolicyState> state = fresh.Fork();
  int64_t so_far = 0;
  for (const std::span<const std::byte> bytes : added) {
    StateReader in(bytes);
    CheckLayout(fresh, in);
    const int64_t from = in.Int(0, so_far);
    so_far = in.Int(from, kMostTokens);
    if (!in.failed()) state->RestoreAdded(from, so_far, in);
    in.Finish();
    if (in.failed()) return refuse(in);
  }
  StateReader in(latest);
  if (so_far != n) in.Fail(fmt::format("it is of {} tokens, not of {}", so_far, n));
  CheckLayout(fresh, in);
  in.Int(n, n);
  if (!in.failed()) state->RestoreLatest(n, in);
  in.Finish();
  if (in.failed()) return refuse(in);
  return state;
}

}  // namespace longheads
