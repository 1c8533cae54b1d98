#include "engine/session_archive.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace longheads {

// How a token was fed, as files have it (docs/context-file.md).
constexpr uint8_t kGoesOn = 0, kDecoded = 1, kBeginsCall = 2;

std::shared_ptr<PageFile> SessionArchive::WriteTo(Engine& engine, std::shared_ptr<PageFile> file) {
  return engine.transformer_->kv_pool()->WriteTo(std::move(file));
}

uint8_t SessionArchive::ByteOf(Session::Fed fed) {
  switch (fed) {
    case Session::Fed::kBeginsCall:
      return kBeginsCall;
    case Session::Fed::kGoesOn:
      return kGoesOn;
    case Session::Fed::kDecoded:
      return kDecoded;
  }
  return kGoesOn;
}

Result<SessionArchive::Delta> SessionArchive::Save(Engine& engine, const Session& session,
                                                   int64_t committed) {
  const SequenceState& state = session.state_;
  const std::shared_ptr<KvPool>& pool = state.kv.pool();
  Delta delta;
  delta.tokens.assign(session.tokens_.begin() + committed, session.tokens_.end());
  for (int64_t i = committed; i < session.size(); ++i) {
    delta.phases.push_back(ByteOf(session.fed_[static_cast<std::size_t>(i)]));
  }
  delta.model_tokens = static_cast<uint64_t>(state.size());

  const int64_t from = engine.insertion_.ModelSize(committed) / kPageTokens;
  const int64_t end = (state.size() + kPageTokens - 1) / kPageTokens;
  const KvGeometry& geometry = state.kv.geometry();
  std::vector<KvPage*> pages;
  for (int64_t layer = 0; layer < geometry.n_layers; ++layer) {
    for (int64_t head = 0; head < geometry.n_kv_heads; ++head) {
      for (int64_t page = from; page < end; ++page) pages.push_back(state.kv.PageAt(layer, head, page));
    }
  }
  LH_TRY(pool->Flush(pages));
  auto next = pages.begin();
  for (int64_t layer = 0; layer < geometry.n_layers; ++layer) {
    for (int64_t head = 0; head < geometry.n_kv_heads; ++head) {
      for (int64_t page = from; page < end; ++page) {
        const KvPool::Place place = pool->PlaceOf(**next++);
        delta.pages.push_back({.layer = static_cast<uint32_t>(layer),
                               .kv_head = static_cast<uint32_t>(head),
                               .page = static_cast<uint64_t>(page),
                               .offset = place.offset,
                               .checksum = place.checksum});
      }
    }
  }
  return delta;
}

Status SessionArchive::SaveStates(const Session& session, const ContextStateSink& take) {
  const SequenceState& state = session.state_;
  for (int64_t layer = 0; layer < state.kv.geometry().n_layers; ++layer) {
    const SavedState saved = state.SaveState(layer, state.unchanged);
    const auto number = static_cast<uint32_t>(layer);
    LH_TRY(take({.layer = number, .bytes = saved.added}));
    LH_TRY(take({.layer = number, .replaces_earlier = true, .bytes = saved.latest}));
  }
  return {};
}

void SessionArchive::Saved(Session& session) { session.state_.unchanged = session.state_.size(); }

Status SessionArchive::Restore(const Engine& engine, const ContextContents& contents,
                               std::shared_ptr<PageFile> pages, const std::string& path, Session& session) {
  LH_CHECK(session.size() == 0);
  const KvGeometry& geometry = engine.kv_geometry();
  const int64_t n = static_cast<int64_t>(contents.tokens.size());
  const int64_t n_model = static_cast<int64_t>(contents.model_tokens);
  const int64_t n_pages = (n_model + kPageTokens - 1) / kPageTokens;
  if (n_model != engine.insertion_.ModelSize(n)) {
    return InvalidInput(
        fmt::format("{}: the method would have read {} tokens of the text, but the file holds {}", path,
                    engine.insertion_.ModelSize(n), n_model));
  }
  for (const int32_t token : contents.tokens) {
    if (token < 0 || token >= engine.config().vocab_size) {
      return InvalidInput(fmt::format("{}: token {} is outside the vocabulary", path, token));
    }
  }
  for (const uint8_t phase : contents.phases) {
    if (phase > kBeginsCall) return InvalidInput(fmt::format("{}: a token's phase is {}", path, phase));
  }

  engine.transformer_->ReserveFor(session.state_, n_model);
  for (int64_t layer = 0; layer < geometry.n_layers; ++layer) {
    // What only grew, of all commits, and what changes, of the newest alone.
    std::vector<std::vector<std::byte>> added, latest;
    for (const ContextStatePart& part : contents.states[static_cast<std::size_t>(layer)]) {
      LH_ASSIGN(std::vector<std::byte> bytes, ReadStatePart(pages->file(), part));
      (part.replaces_earlier ? latest : added).push_back(std::move(bytes));
    }
    if (latest.empty()) return InvalidInput(fmt::format("{}: the state of layer {} is missing", path, layer));
    const std::vector<std::span<const std::byte>> views(added.begin(), added.end());
    const Status status = session.state_.RestoreState(layer, views, latest.front(), n_model);
    if (!status) return MakeError(status.error().kind, fmt::format("{}: {}", path, status.error().message));
  }

  std::vector<KvPool::Place> places;
  places.reserve(contents.pages.size());
  for (int64_t layer = 0; layer < geometry.n_layers; ++layer) {
    for (int64_t head = 0; head < geometry.n_kv_heads; ++head) {
      for (int64_t page = 0; page < n_pages; ++page) {
        const std::size_t at =
            static_cast<std::size_t>((page * geometry.n_layers + layer) * geometry.n_kv_heads + head);
        places.push_back({pages, contents.pages[at].offset, contents.pages[at].checksum});
      }
    }
  }
  session.state_.kv.Adopt(n_model, places);
  session.state_.unchanged = n_model;
  session.tokens_ = contents.tokens;
  // A prompt begins with a call, also in files of before calls were told apart.
  session.fed_.clear();
  uint8_t before = kDecoded;
  for (const uint8_t phase : contents.phases) {
    const bool begins = phase == kBeginsCall || (phase == kGoesOn && before == kDecoded);
    session.fed_.push_back(phase == kDecoded ? Session::Fed::kDecoded
                           : begins          ? Session::Fed::kBeginsCall
                                             : Session::Fed::kGoesOn);
    before = phase;
  }
  return {};
}

}  // namespace longheads
