// Counts the allocations of a step, and what the allocator holds at its peak.
#include "lab/allocations.h"

#include <optional>
#include <string>

#include "record/rows.h"
#include "trace/memory_recorder.h"

namespace rooflm::lab {
namespace {

using AllocatorBytes = backends::Backend::AllocatorBytes;

/// Keeps what the allocator said at the step's peak.
class PeakRecorder : public trace::MemoryRecorder {
 public:
  PeakRecorder(const program::Program& program, const backends::Backend& backend)
      : MemoryRecorder(program), backend_(&backend) {}

  void on_allocate(const program::Program& program, program::TensorId id, std::int64_t live_bytes) override {
    MemoryRecorder::on_allocate(program, id, live_bytes);
    if (live_bytes <= most_live_bytes_) return;
    most_live_bytes_ = live_bytes;
    at_peak_ = backend_->allocator_bytes();
  }
  [[nodiscard]] const std::optional<AllocatorBytes>& at_peak() const { return at_peak_; }

 private:
  const backends::Backend* backend_;
  std::int64_t most_live_bytes_ = 0;
  std::optional<AllocatorBytes> at_peak_;
};

}  // namespace

void write_allocations(engines::Engine& engine, const backends::Backend& backend, std::int64_t run,
                       record::Writer& record) {
  PeakRecorder memory(engine.program(), backend);
  engine.run(&memory);
  record.add(run, memory.events());
  const auto fact = [&](const std::string& key, double value, const std::string& unit,
                        const std::string& text = "") {
    record.add(run, record::Fact{.key = key, .value = value, .unit = unit, .text = text});
  };
  fact("allocations", static_cast<double>(memory.allocations()), "", "per step");
  fact("allocator_peak_bytes", static_cast<double>(engine.peak_transient_bytes()), "B");
  const auto& peak = memory.at_peak();
  if (!peak || peak->held <= 0) return;
  fact("allocator_reserved_bytes", peak->held, "B", "weights and all else included");
  fact("fragmentation", 1 - peak->given_out / peak->held, "share");
}

}  // namespace rooflm::lab
