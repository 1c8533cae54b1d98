// All that one sequence is: keys and values, and every layer's policy state.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "attention/near_keys.h"
#include "attention/state_archive.h"
#include "base/result.h"
#include "kv/reservation.h"
#include "kv/sequence.h"

namespace longheads {

struct SequenceState {
  KvSequence kv;
  std::vector<std::unique_ptr<PolicyState>> policies;  // one per layer
  std::vector<std::unique_ptr<NearKeys>> near;         // one per layer; null where its policy wants none
  // Of what is kept beside the pages (Transformer::ReserveFor): what forks share, and what each has for
  // itself.
  KvSharedReservation reserved;
  KvReservation reserved_own;

  // Tokens [0, unchanged) are as they were when the states were last saved: Truncate lowers it, who has saved
  // raises it to size().
  int64_t unchanged = 0;

  int64_t size() const { return kv.size(); }
  uint64_t NearBytes() const;  // of near keys, as they are now
  SequenceState Fork() const;
  // The most tokens m <= n that Truncate can go back to.
  int64_t RewindPoint(int64_t n) const;
  void Truncate(int64_t m);

  // One layer's policy state between two calls of the model: all of it, or, with `from` = unchanged, what is
  // new since the last save; and the state of n tokens that saves of it are of, in a new sequence, which is
  // left as it was where they are refused. Layer by layer, so that nobody holds the states of a long text
  // twice.
  //
  // They are the same for the same policies and frequencies alone. Besides the model, the spec of the
  // attention, what overrides the model's RoPE, the compute type and the type of the store, these follow from
  // the length that the text was expected to have (Engine::ExpectText: "dynamic-ntk",
  // "self-extend,group=auto"): who keeps states keeps that length, and expects it again before the sequence
  // is made, however long the text has become. Frequencies that follow the text as it grows are a function of
  // size(), and need nothing; but where Engine::CallUnit is 0 the calls that read the text matter, so that a
  // reading that is taken up again must make the same ones.
  SavedState SaveState(int64_t layer, int64_t from) const;
  Status RestoreState(int64_t layer, std::span<const std::span<const std::byte>> added,
                      std::span<const std::byte> latest, int64_t n);
};

}  // namespace longheads
