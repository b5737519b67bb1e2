// A device that runs nothing: for planning and tests.
#include "backends/null/null_backend.h"

#include <cstring>
#include <utility>

#include "program/ops.h"

namespace rooflm::backends {
namespace {

Kernel make_nothing(const program::Program&, const program::Op&) {
  return {[](const KernelArgs&) {}, {.library = {}, .launches = 0}};
}

std::vector<KernelRow> table() {
  std::vector<KernelRow> rows;
  for (const program::OpDef* op : program::ops::all()) rows.push_back({op, make_nothing});
  return rows;
}

class NullBackend final : public Backend {
 public:
  NullBackend(std::string device, double free_bytes)
      : Backend(table()), device_(std::move(device)), free_bytes_(free_bytes) {}
  [[nodiscard]] std::string device() const override { return device_; }
  /// Distinct, aligned addresses that must not be accessed.
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    const std::size_t address = next_;
    next_ += (bytes + 63) / 64 * 64;
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): never dereferenced
  }
  void release(void*) noexcept override {}
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void* host, const void*, std::size_t bytes) override { std::memset(host, 0, bytes); }
  void zero(void*, std::size_t) override {}
  void synchronize() override {}
  [[nodiscard]] double free_bytes() const override { return free_bytes_; }

 private:
  std::string device_;
  double free_bytes_;
  std::size_t next_ = 64;
};

}  // namespace

std::unique_ptr<Backend> make_null_backend(std::string device, double free_bytes) {
  return std::make_unique<NullBackend>(std::move(device), free_bytes);
}

}  // namespace rooflm::backends
