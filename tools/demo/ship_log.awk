# A ship's log, an entry for every day, each put together from a few plain sentences; the same at every run.
#   awk -v days=N -v hide=DAY -v fact=SENTENCE -f ship_log.awk    SENTENCE stands behind the entry of DAY
function pick(list, n) {
  seed = (seed * 1103 + 12345) % 65536
  return list[int(seed / 65536 * n) + 1]
}
BEGIN {
  n_winds = split("north,north-east,east,south-east,south,south-west,west,north-west", winds, ",")
  n_seas = split("calm,smooth,slight,choppy,rough,high", seas, ",")
  n_skies = split("clear,cloudy,grey,bright,hazy,dark", skies, ",")
  n_events = split("The crew mended the sails.|The crew scrubbed the deck.|" \
                   "The cook served salt beef and biscuits.|The carpenter caulked the hull.|" \
                   "We passed a merchant ship.|We saw whales to the west.|The men fished from the stern.|" \
                   "We took soundings at noon.|The boatswain spliced the ropes.|A sailor fell ill and rested.",
                   events, "|")
  seed = 7
  for (day = 1; day <= days; ++day) {
    printf "Day %d. Wind from the %s, the sea %s, the sky %s.", day, pick(winds, n_winds), pick(seas, n_seas),
      pick(skies, n_skies)
    printf " %s %s\n", pick(events, n_events), pick(events, n_events)
    if (day == hide) print fact
  }
}
