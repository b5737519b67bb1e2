// Builds a timeline. For the files timeline*.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/model/kernel_names.h"
#include "report/page/timeline.h"

namespace rooflm::report {

class TimelineBuilder {
 public:
  /// Borrows `run`.
  TimelineBuilder(const RunData& run, std::size_t most_events)
      : run_(run), most_events_(most_events), short_names_(short_kernel_names(run.activity_names)) {}

  /// When steps ran, in the record's clock.
  struct Span {
    std::int64_t start_ns = 0, end_ns = 0;
    std::size_t events = 0;
    void include(std::int64_t start, std::int64_t end);
  };
  using Spans = std::map<std::int64_t, Span>;
  [[nodiscard]] Spans spans() const { return run_.activities.empty() ? op_spans() : activity_spans(); }
  /// Of all steps only these are shown.
  void allow(std::set<std::int64_t> steps) { allowed_ = std::move(steps); }

  Timeline build() &&;

  /// What is alive while an op runs and after it.
  struct OpMemory {
    std::int64_t most_bytes = 0, last_bytes = 0;
  };

 private:
  using Points = std::vector<std::pair<std::int64_t, double>>;  ///< time, bytes
  /// An event before it has its place: times in the record's clock.
  struct Draft {
    TimelineEvent event;
    std::optional<std::int64_t> correlation{};
  };

  [[nodiscard]] Spans activity_spans() const;
  [[nodiscard]] Spans op_spans() const;
  void take_activities();
  void add_activity(const record::Activity& activity,
                    const std::map<std::int64_t, const record::ActivityName*>& names);
  void take_ops();
  [[nodiscard]] std::string kind_of_step(std::int64_t step) const;
  [[nodiscard]] std::vector<std::int64_t> wanted_steps(const Spans& spans) const;
  void choose_steps(Spans spans);
  void add_ranges();
  void add_idle();
  void add_ranges_of(std::size_t step, const std::string& op_lane, std::size_t lane);
  void add_range(std::size_t lane, std::size_t step, const char* kind, const std::string& text,
                 const std::string& of_class, std::int64_t start_ns, std::int64_t end_ns);
  void order_lanes();
  void set_origin();
  void finish_events();
  void add_memory();
  void add_memory_of_steps();
  [[nodiscard]] Points allocations_of(std::size_t step, double persistent) const;
  [[nodiscard]] Points planned_memory_of(std::size_t step,
                                         const std::map<std::int64_t, OpMemory>& of_op) const;
  void add_gauges();

  std::size_t name_of(const std::string& kind, const std::string& text);
  std::size_t class_of(const std::string& name);
  std::optional<std::size_t> launch_of(const std::string& extra);
  std::size_t lane_of(const TimelineLane& lane);
  [[nodiscard]] std::optional<std::size_t> step_place(std::int64_t step) const;
  [[nodiscard]] const record::Op* op_of(const std::optional<std::int64_t>& op) const;
  [[nodiscard]] std::string lane_of_op(const TimelineEvent& event) const;

  const RunData& run_;
  std::size_t most_events_;
  std::optional<std::set<std::int64_t>> allowed_;
  Timeline timeline_;
  std::vector<Draft> drafts_;
  std::map<std::pair<std::string, std::string>, std::size_t> names_;
  std::map<std::string, std::string, std::less<>> short_names_;  ///< of kernels
  std::map<std::string, std::size_t> classes_, launches_;
  std::map<std::int64_t, std::size_t> lanes_;  ///< by the record's number
};

}  // namespace rooflm::report
