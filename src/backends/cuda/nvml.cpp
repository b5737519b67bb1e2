// NVML, the GPU monitoring library, opened at run time.
#include "backends/cuda/nvml.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

// Declared here so that nvml.h is not needed to build.
using Device = Nvml::Device;
using Plain = int (*)();
using AskNumber = int (*)(Device, unsigned*);
using AskWide = int (*)(Device, unsigned long long*);
using AskOne = int (*)(Device, int, unsigned*);
struct Utilization {
  unsigned gpu = 0, memory = 0;  // percent
};
using AskUtilization = int (*)(Device, Utilization*);
struct FieldValue {
  unsigned field = 0, scope = 0;
  long long timestamp_us = 0, latency_us = 0;
  int type = 0, status = 0;
  union {
    double number;
    unsigned integer;
    unsigned long long wide;
  } value{};
};
using AskFields = int (*)(Device, int, FieldValue*);
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;
constexpr int kGpuTemperature = 0;
constexpr unsigned kPowerNow = 186;  // NVML_FI_DEV_POWER_INSTANT, in milliwatts
constexpr double kMilli = 1e-3;
constexpr double kMega = 1e6;
constexpr double kPercent = 1e-2;

class NvmlGauges final : public Gauges {
 public:
  explicit NvmlGauges(int index)
      : device_(nvml_.device(index)),
        power_(nvml_.find<AskNumber>("nvmlDeviceGetPowerUsage")),
        fields_(nvml_.find<AskFields>("nvmlDeviceGetFieldValues")),
        clock_(nvml_.find<AskOne>("nvmlDeviceGetClockInfo")),
        temperature_(nvml_.find<AskOne>("nvmlDeviceGetTemperature")),
        utilization_(nvml_.find<AskUtilization>("nvmlDeviceGetUtilizationRates")),
        throttle_(nvml_.find<AskWide>("nvmlDeviceGetCurrentClocksEventReasons")),
        energy_(nvml_.find<AskWide>("nvmlDeviceGetTotalEnergyConsumption")) {
    // Its name before driver 535.
    if (throttle_ == nullptr) {
      throttle_ = nvml_.find<AskWide>("nvmlDeviceGetCurrentClocksThrottleReasons");
    }
  }

  [[nodiscard]] std::string missing() const {
    if (!nvml_.reason().empty()) return nvml_.reason();
    return device_ == nullptr ? "NVML does not know this GPU" : "";
  }

  [[nodiscard]] std::vector<GaugeValue> read() override {
    std::vector<GaugeValue> values;
    const auto add = [&](const char* name, std::optional<double> value, const char* unit) {
      if (value) values.push_back({.name = name, .value = *value, .unit = unit});
    };
    add("power_w", power_w(), "W");
    add("sm_clock_hz", one(clock_, kSmClock, kMega), "Hz");
    add("memory_clock_hz", one(clock_, kMemoryClock, kMega), "Hz");
    add("temperature_c", one(temperature_, kGpuTemperature, 1), "C");
    Utilization busy;
    if (utilization_ != nullptr && utilization_(device_, &busy) == 0) {
      add("gpu_utilization", kPercent * busy.gpu, "share");
    }
    add("throttle", wide(throttle_, 1), "bits");
    return values;
  }

  [[nodiscard]] std::optional<double> energy_j() override { return wide(energy_, kMilli); }

  [[nodiscard]] std::optional<double> max_sm_clock_hz() override {
    return one(nvml_.find<AskOne>("nvmlDeviceGetMaxClockInfo"), kSmClock, kMega);
  }

 private:
  /// Instantaneous power; nvmlDeviceGetPowerUsage reports a one-second mean on newer GPUs.
  [[nodiscard]] std::optional<double> power_w() const {
    FieldValue now{.field = kPowerNow};
    if (fields_ != nullptr && fields_(device_, 1, &now) == 0 && now.status == 0) {
      return kMilli * now.value.integer;
    }
    unsigned milliwatts = 0;
    if (power_ == nullptr || power_(device_, &milliwatts) != 0) return std::nullopt;
    return kMilli * milliwatts;
  }
  [[nodiscard]] std::optional<double> one(AskOne ask, int which, double unit) const {
    unsigned value = 0;
    if (ask == nullptr || ask(device_, which, &value) != 0) return std::nullopt;
    return unit * value;
  }
  [[nodiscard]] std::optional<double> wide(AskWide ask, double unit) const {
    unsigned long long value = 0;
    if (ask == nullptr || ask(device_, &value) != 0) return std::nullopt;
    return unit * static_cast<double>(value);
  }

  Nvml nvml_;
  Device device_;
  AskNumber power_;
  AskFields fields_;
  AskOne clock_, temperature_;
  AskUtilization utilization_;
  AskWide throttle_, energy_;
};

}  // namespace

Nvml::Nvml() {
  try {
    library_.emplace("NVML", std::vector<std::string>{"libnvidia-ml.so.1"});
  } catch (const core::Unavailable& error) {
    reason_ = error.what();
    return;
  }
  const auto init = find<Plain>("nvmlInit_v2");
  const int status = init == nullptr ? -1 : init();
  if (status != 0) reason_ = fmt::format("NVML does not start (nvmlInit: error {})", status);
}

Nvml::~Nvml() {
  if (!reason_.empty()) return;
  if (const auto shutdown = find<Plain>("nvmlShutdown")) shutdown();
}

/// NVML numbers GPUs by bus order, CUDA by CUDA_VISIBLE_DEVICES; the bus address identifies a GPU in both.
Nvml::Device Nvml::device(int index) const {
  if (!reason_.empty()) return nullptr;
  using Find = int (*)(const char*, Device*);
  const auto find_device = find<Find>("nvmlDeviceGetHandleByPciBusId_v2");
  constexpr std::size_t kAddressBytes = 64;
  std::array<char, kAddressBytes> address{};
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), index) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  Device device = nullptr;
  if (find_device == nullptr || find_device(address.data(), &device) != 0) return nullptr;
  return device;
}

FoundGauges find_gauges(int index) {
  auto gauges = std::make_unique<NvmlGauges>(index);
  std::string missing = gauges->missing();
  if (!missing.empty()) return {.gauges = nullptr, .missing = std::move(missing)};
  return {.gauges = std::move(gauges), .missing = {}};
}

}  // namespace rooflm::backends::cuda
