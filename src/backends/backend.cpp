// What all backends share: finding the kernel of an op in the table, and the time of the host.
#include "backends/backend.h"

#include <fmt/format.h>

#include <chrono>

#include "core/error.h"

namespace rooflm::backends {
namespace {

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(std::size_t marks) : marks_(marks) {}
  void mark(std::size_t index) override { marks_.at(index) = Clock::now(); }
  [[nodiscard]] double elapsed_s(std::size_t from, std::size_t to) const override {
    return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<Stopwatch> Backend::make_stopwatch(std::size_t marks) const {
  return std::make_unique<HostStopwatch>(marks);
}

std::unique_ptr<Recording> Backend::record(const std::function<void()>& /*submit*/, bool /*in_order*/) {
  return nullptr;
}

Kernel Backend::make_kernel(const program::Program& program, const program::Op& op) const {
  for (const KernelRow& row : table_) {
    if (row.op != op.def) continue;
    if (Kernel kernel = row.make(program, op)) return kernel;
  }
  std::string dtypes;
  for (const program::TensorId id : op.inputs) {
    if (id != program::kNone) dtypes += fmt::format(" {}", core::name_of(program.tensor(id).dtype));
  }
  throw core::Unavailable(fmt::format("{} has no kernel for {} in {} with inputs of{}", device(),
                                      op.def->name, op.scope, dtypes));
}

}  // namespace rooflm::backends
