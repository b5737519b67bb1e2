// What could be the steps of a program, and which of it is. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "foreign/device_work.h"
#include "foreign/foreign_run.h"

namespace rooflm::foreign {

/// A step as the host asked for it.
struct HostStep {
  std::int64_t number = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t lane = 0;                              ///< of the host
  bool is_marked = false;                             ///< the recorder said so
  bool is_exact = false;                              ///< of one of our exports: it lasts as its range
  std::optional<std::size_t> range{};                 ///< the activity that it is
  std::optional<std::pair<std::size_t, std::size_t>>  ///< its work, from a place of device_work to before
                                                      ///< one;
      work{};                                         ///< otherwise what was asked for meanwhile
};

struct Candidate {
  std::string what{};  ///< "ranges ProfilerStep"
  double weight = 0;   ///< how sure such steps are, from 0 to 1
  bool is_named = false;
  std::vector<HostStep> steps{};
  double share = 0;            ///< of the time of all kernels that its steps launched
  double window_share = 0;     ///< the same of what was launched from the first to the last
  double regularity = 1;       ///< how much two consecutive steps have in common, from 0 to 1: the median
  std::size_t kernels = 0;     ///< of a step: the median
  bool may_be_layers = false;  ///< what repeats is as likely a part of one step
  [[nodiscard]] double score() const { return weight * share * regularity; }
};

/// The place among `steps` of each part of `work`; nothing for what is of none.
std::vector<std::optional<std::size_t>> steps_of_work(ForeignRun& run, const std::vector<Launched>& work,
                                                      const std::vector<HostStep>& steps);

/// The candidate with the highest score: of the device's time that its steps launched, times its regularity,
/// times its weight. Those that cover little of it are refused, and the best of these is named in
/// `refused`. Nothing, and no refusal, where run.steps_by says so. Candidates are calls of an optimizer's
/// step, ranges that are named as steps, other ranges that repeat, kernels that repeat, launches of graphs.
std::optional<Candidate> choose_steps(ForeignRun& run, const std::vector<Launched>& work,
                                      std::string& refused);

}  // namespace rooflm::foreign
