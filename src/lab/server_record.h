// The record of a server that runs.
#pragma once

#include <cstdint>
#include <mutex>

#include "lab/serving_cells.h"
#include "record/writer.h"
#include "serve/server_log.h"

namespace rooflm::lab {

/// Keeps requests and batches until `flush` writes them. Steps that follow each other with the same number of
/// texts become one row, of at most a second: the record grows with requests and seconds, not with tokens.
/// The writer is used by `flush` and the constructor alone.
class ServerRecord : public serve::ServerLog {
 public:
  ServerRecord(record::Writer& writer, LoadRow load);
  void ended(const serve::EndedText& text) override;
  void ran(const serve::BatchStep& step) override;
  /// Writes what ended so far; it is durable on return. Throws as record::Writer.
  void flush();

 private:
  void end_batch();

  record::Writer* writer_;
  std::mutex mutex_;  ///< of what follows
  ServingCells cells_;
  serve::BatchStep batch_{};
  std::int64_t steps_ = 0;  ///< of the batch; 0: none has begun
};

}  // namespace rooflm::lab
