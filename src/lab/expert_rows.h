// How many rows each expert had in the last step of an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "record/rows.h"

namespace rooflm::lab {

/// Reads the offsets that `dispatch` leaves as results: after a step, which it costs nothing. Reads nothing
/// of programs without experts.
class ExpertReader {
 public:
  /// `steps`: as many as will be read at most, of which every n-th is, so that there are no more than a
  /// million rows. The engine must outlive it.
  explicit ExpertReader(engines::Engine& engine, std::int64_t steps);

  /// Appends the rows of the step that ran last, whose number is `step`.
  void read(std::int64_t step, std::vector<record::ExpertRows>& rows) const;

 private:
  /// A `dispatch` of the step.
  struct Layer {
    std::int64_t layer = 0, micro_batch = 0;
    std::string offsets;  ///< the result, [E + 1]
  };
  engines::Engine* engine_;
  std::vector<Layer> layers_;
  std::int64_t every_ = 1;
};

}  // namespace rooflm::lab
