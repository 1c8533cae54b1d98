#include "trace/trace_writer.h"

#include <limits>
#include <span>

#include "trace/trace_records.h"

namespace longheads {
namespace {

void PutFixed(uint32_t x, std::string& bytes) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(x >> shift));
}

}  // namespace

Result<TraceWriter> TraceWriter::Create(const std::string& path, const TraceHeader& header) {
  LH_ASSIGN(OutputFile file, OutputFile::Create(path));
  TraceWriter writer(std::move(file));
  std::string start(kTraceMagic);
  PutFixed(kTraceVersion, start);
  writer.Write(start);
  writer.Record(kTraceHeader, TraceHeaderJson(header));
  return writer;
}

void TraceWriter::Write(std::string_view bytes) {
  if (!status_) return;
  status_ = file_.Write(std::as_bytes(std::span(bytes)));
  bytes_ += bytes.size();
}

void TraceWriter::Record(char kind, std::string_view payload) {
  if (!status_) return;
  if (payload.size() > std::numeric_limits<uint32_t>::max()) {
    status_ = InvalidInput("a record of the trace is larger than 4 GiB: trace a shorter text");
    return;
  }
  std::string head(1, kind);
  PutFixed(static_cast<uint32_t>(payload.size()), head);
  std::string tail;
  PutFixed(TraceChecksum(head, payload), tail);
  Write(head);
  Write(payload);
  Write(tail);
  ++n_records_;
}

void TraceWriter::AddTokens(const TraceTokens& tokens) {
  payload_.clear();
  EncodeTokens(tokens, payload_);
  Record(kTraceTokens, payload_);
}

void TraceWriter::AddSelection(const TokenSelection& selection) {
  payload_.clear();
  EncodeSelection(selection, payload_);
  Record(kTraceSelection, payload_);
}

void TraceWriter::AddCounts(const PromptCounts& counts) {
  payload_.clear();
  EncodeCounts(counts, payload_);
  Record(kTraceCounts, payload_);
}

Status TraceWriter::Finish() {
  payload_.clear();
  PutFixed(static_cast<uint32_t>(n_records_), payload_);
  Record(kTraceEnd, payload_);
  LH_TRY(status_);
  return file_.Commit();
}

}  // namespace longheads
