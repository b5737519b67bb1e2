// The provider of the device that runs nothing. It stands for this machine's CPU ("null") or for a device of
// the catalog ("null:h100-sxm").
#include "backends/provider.h"

#include <limits>

#include "backends/null/null_backend.h"

namespace rooflm::backends {
namespace {

constexpr std::string_view kPrefix = "null:";

class NullProvider final : public Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "null"; }
  [[nodiscard]] std::string parse(std::string_view rest) const override {
    return rest.empty() ? "null" : std::string(kPrefix) + devices::find_device(rest).key;
  }
  [[nodiscard]] devices::Device describe(const std::string& device) const override {
    return device.starts_with(kPrefix) ? devices::find_device(device.substr(kPrefix.size()))
                                       : devices::device_of_kind(devices::Kind::cpu);
  }
  [[nodiscard]] std::unique_ptr<Backend> make(const std::string& device,
                                              const MakeOptions& /*options*/) const override {
    const double bytes = describe(device).memory_bytes();
    return make_null_backend(device, bytes > 0 ? bytes : std::numeric_limits<double>::infinity());
  }
  [[nodiscard]] bool runs() const override { return false; }
};

}  // namespace

const Provider& null_provider() {
  static const NullProvider provider;
  return provider;
}

}  // namespace rooflm::backends
