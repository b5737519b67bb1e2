// Fuzz target: a catalog of devices.
#include "devices/user_catalog.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const auto path = fuzz::scratch_file("devices.json", fuzz::text_of(data, size));
  return fuzz::attempt([&] {
    for (const devices::Device& device : devices::read_catalog(path)) {
      if (device.key.empty()) std::abort();
    }
  });
}
