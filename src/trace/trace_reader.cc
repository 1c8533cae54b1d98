#include "trace/trace_reader.h"

#include <fmt/format.h>

#include "formats/mapped_file.h"
#include "trace/trace_records.h"

namespace longheads {
namespace {

uint32_t FixedAt(std::string_view bytes, std::size_t at) {
  uint32_t x = 0;
  for (int i = 0; i < 4; ++i)
    x |= uint32_t{static_cast<uint8_t>(bytes[at + static_cast<std::size_t>(i)])} << (8 * i);
  return x;
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& name, const TraceParts& parts)
      : rest_(bytes), name_(name), parts_(parts) {}

  Status Read() {
    if (!rest_.starts_with(kTraceMagic)) {
      return InvalidInput(
          fmt::format("{}: not a trace file ('longheads run --trace FILE' writes one)", name_));
    }
    if (rest_.size() < kTraceMagic.size() + 4) return CutOff();
    const uint32_t version = FixedAt(rest_, kTraceMagic.size());
    if (version != kTraceVersion) {
      return Unsupported(
          fmt::format("{}: a trace of version {}, but this program reads version {}: write it anew", name_,
                      version, kTraceVersion));
    }
    rest_.remove_prefix(kTraceMagic.size() + 4);
    for (uint32_t n_records = 0;; ++n_records) {
      LH_TRY(Next());
      if (kind_ == kTraceEnd) return End(n_records);
      if ((kind_ == kTraceHeader) != (n_records == 0)) return Damaged("its header is not where it belongs");
      LH_TRY(Part());
    }
  }

 private:
  Status CutOff() const {
    return InvalidInput(fmt::format("{}: the trace is cut off: write or copy it anew", name_));
  }
  Status Damaged(std::string_view what) const {
    return InvalidInput(fmt::format("{}: the trace is damaged ({}): write or copy it anew", name_, what));
  }

  // kind_ and payload_ of the next record, whole.
  Status Next() {
    if (rest_.size() < kTraceRecordHead) return CutOff();
    const std::string_view head = rest_.substr(0, kTraceRecordHead);
    const std::size_t size = FixedAt(head, 1);
    if (rest_.size() - kTraceRecordHead < size + kTraceRecordTail) return CutOff();
    payload_ = rest_.substr(kTraceRecordHead, size);
    if (FixedAt(rest_, kTraceRecordHead + size) != TraceChecksum(head, payload_)) {
      return Damaged("a checksum does not fit");
    }
    kind_ = head.front();
    rest_.remove_prefix(kTraceRecordHead + size + kTraceRecordTail);
    return {};
  }

  Status End(uint32_t n_records) const {
    if (payload_.size() != 4 || FixedAt(payload_, 0) != n_records) return Damaged("records are missing");
    if (!rest_.empty()) return Damaged("something follows its end");
    return {};
  }

  template <typename Part>
  Status Give(const std::optional<Part>& part, const std::function<Status(const Part&)>& to) const {
    if (!part) return Damaged("a record is not what it says");
    return to ? to(*part) : Status{};
  }

  Status Part() {
    switch (kind_) {
      case kTraceHeader: {
        const Result<TraceHeader> header = ParseTraceHeader(payload_);
        if (!header) return Damaged("its header says nothing that could be: " + header.error().message);
        n_rows_ = header->n_layers * header->n_heads;
        return Give(std::optional(*header), parts_.on_header);
      }
      case kTraceTokens:
        return Give(DecodeTokens(payload_), parts_.on_tokens);
      case kTraceSelection:
        return Give(DecodeSelection(payload_, n_rows_), parts_.on_selection);
      case kTraceCounts:
        return Give(DecodeCounts(payload_, n_rows_), parts_.on_counts);
      default:
        return Damaged("a record is of no known kind");
    }
  }

  std::string_view rest_;
  const std::string& name_;
  const TraceParts& parts_;
  char kind_ = 0;
  std::string_view payload_;
  int64_t n_rows_ = 0;
};

}  // namespace

Status ReadTrace(std::string_view bytes, const std::string& name, const TraceParts& parts) {
  return Reader(bytes, name, parts).Read();
}

Status ReadTraceFile(const std::string& path, const TraceParts& parts) {
  LH_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  return ReadTrace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, parts);
}

}  // namespace longheads
