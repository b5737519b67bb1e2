// Times every op of a step by the host's clock, each in isolation.
#include "trace/alone_recorder.h"

#include <chrono>

#include "core/statistics.h"

namespace rooflm::trace {
namespace {

double host_clock_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void AloneRecorder::on_op_begin(const program::Program& /*program*/, std::size_t /*index*/) {
  backend_->synchronize();
  begin_s_ = host_clock_s();
}

void AloneRecorder::on_op_end(const program::Program& /*program*/, std::size_t index) {
  backend_->synchronize();
  wall_s_[index].push_back(host_clock_s() - begin_s_);
}

std::vector<record::Counter> AloneRecorder::counters() const {
  std::vector<record::Counter> counters;
  for (std::size_t i = 0; i < wall_s_.size(); ++i) {
    if (wall_s_[i].empty()) continue;
    counters.push_back({.name = record::kAloneWall,
                        .value = core::median(wall_s_[i]),
                        .unit = "s",
                        .source = record::kAloneSource,
                        .op = static_cast<std::int64_t>(i)});
  }
  return counters;
}

}  // namespace rooflm::trace
