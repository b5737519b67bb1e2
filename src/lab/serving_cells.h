// Served loads as cells of a record.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lab/micro/cells.h"
#include "lab/serving.h"
#include "record/rows.h"
#include "serve/batcher.h"

namespace rooflm::lab {

/// What is asked of a request's latency.
struct LatencyLimits {
  double ttft_s = 0, tpot_s = 0;
};

/// A load: requests at one rate, served in one way.
struct LoadRow {
  std::string model, configuration, device, dtype, engine;
  std::int64_t slots = 0, positions = 0;
  std::string schedule;
  double rate = 0;           ///< requests/s; infinite: all at once
  bool is_observed = false;  ///< a server's, which takes what comes
  serve::BatchTimes times{};
  LatencyLimits limits{};
};

/// Rows of the series record::kServingSeries, of record::kServingRequestSeries for each request, and of
/// record::kServingBatchSeries for batches.
class ServingCells {
 public:
  void add(const LoadRow& load, std::span<const ServedRequest> requests);
  /// One more request of the newest load.
  void add(const ServedRequest& served);
  /// Steps of one kind of the newest load, one after another.
  void add(const serve::BatchStep& batch, std::int64_t steps);
  /// What came since the last call.
  [[nodiscard]] std::vector<record::Cell> take();
  [[nodiscard]] bool is_empty() const { return load_ < 0; }

 private:
  Cells loads_{record::kServingSeries}, requests_{record::kServingRequestSeries},
      batches_{record::kServingBatchSeries};
  std::int64_t load_ = -1;
};

}  // namespace rooflm::lab
