// This machine's CPU as a device: memory and the kernel table.
#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <omp.h>

#include <cstring>
#include <utility>

#include "backends/cpu/levels.h"
#include "backends/cpu/resources.h"
#include "backends/thread_team.h"
#include "core/error.h"
#include "core/stop_signals.h"

namespace rooflm::backends {
namespace {

/// The calling thread's next teams have `threads` threads.
void use_team(int threads) {
  allow_whole_teams();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

/// Sets OpenMP's thread count before each run: it belongs to the calling thread, and other backends may
/// change it.
Kernel with_threads(Kernel kernel, int threads) {
  if (!kernel) return kernel;
  return {[run = std::move(kernel.run), threads](const KernelArgs& args) {
            use_team(threads);
            run(args);
          },
          std::move(kernel.info)};
}

KernelRow bind(const cpu::MakerRow& row, const std::shared_ptr<cpu::Resources>& resources) {
  return {row.op, [row, resources](const program::Program& program, const program::Op& op) {
            use_team(resources->threads());
            return with_threads(make_named(row, {program, op, resources}), resources->threads());
          }};
}

std::vector<KernelRow> table(CpuKernels kernels, const std::shared_ptr<cpu::Resources>& resources) {
  std::vector<KernelRow> rows;
  if (kernels == CpuKernels::fast) {
    for (const auto& row : cpu::level().fast()) rows.push_back(bind(row, resources));
  }
  for (const auto& row : cpu::level().reference()) rows.push_back(bind(row, resources));
  return rows;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(CpuKernels kernels, const std::shared_ptr<cpu::Resources>& resources)
      : Backend(table(kernels, resources)), resources_(resources) {
    require_team(resources->threads());
    use_team(resources->threads());
    cpu::keep_released_memory();
#pragma omp parallel
    core::give_signal_stack();
  }
  ~CpuBackend() override { cpu::trim_memory(); }
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;
  [[nodiscard]] std::string device() const override { return "cpu"; }
  [[nodiscard]] void* allocate(std::size_t bytes) override { return cpu::allocate_memory(bytes); }
  [[nodiscard]] std::optional<AllocatorBytes> allocator_bytes() const override {
    return cpu::allocator_bytes();
  }
  void release(void* data) noexcept override { cpu::release_memory(data); }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void zero(void* device, std::size_t bytes) override {
    if (bytes > 0) std::memset(device, 0, bytes);
  }
  void synchronize() override {}
  [[nodiscard]] double free_bytes() const override { return cpu::available_memory_bytes(); }
  /// Scratch memory shared by all kernels. The reference kernels' own buffers are not counted.
  [[nodiscard]] std::int64_t workspace_bytes() const override {
    return static_cast<std::int64_t>(resources_->scratch().bytes());
  }

 private:
  std::shared_ptr<cpu::Resources> resources_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(CpuKernels kernels, int threads) {
  if (threads < 0) throw core::UsageError(fmt::format("--threads {}: must not be negative", threads));
  const int used = threads > 0 ? threads : default_team();
  return std::make_unique<CpuBackend>(kernels, std::make_shared<cpu::Resources>(used));
}

}  // namespace rooflm::backends
