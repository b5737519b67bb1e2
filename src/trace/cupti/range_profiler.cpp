// Counters of a GPU through CUPTI's range profiler, with user ranges and user replay.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "trace/cupti/counter_config.h"
#include "trace/cupti/profiler_library.h"
#include "trace/device_counters.h"

namespace rooflm::trace {
namespace {

/// Why the device's configuration does not support counters; "" if it does or nothing is known.
std::string why_unsupported(const ProfilerLibrary& cupti, CUdevice device) {
  CUpti_Profiler_DeviceSupported_Params params{};
  params.structSize = CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE;
  params.cuDevice = device;
  params.api = CUPTI_PROFILER_RANGE_PROFILING;
  if (cupti.device_supported(&params) != CUPTI_SUCCESS) return {};
  if (params.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return {};
  const auto is_bad = [](CUpti_Profiler_Support_Level level) {
    return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
           level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
  };
  if (is_bad(params.architecture)) return "the GPU is older than Volta";
  if (is_bad(params.vGpu)) return "the GPU is virtual: whoever runs the hypervisor must allow counters";
  if (is_bad(params.confidentialCompute)) return "confidential computing is on";
  if (is_bad(params.sli)) return "SLI is on";
  if (is_bad(params.cmp)) return "it is a mining processor";
  if (is_bad(params.wsl)) return "not under WSL";
  return "not in this configuration (MIG, perhaps)";
}

class RangeProfiler final : public DeviceCounters {
 public:
  RangeProfiler() : cupti_(ProfilerLibrary::load()), current_(CurrentContext::find()) {
    auto initialize =
        params_of<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
    cupti_.check(cupti_.initialize(&initialize), "starting its profiler");
    if (const std::string reason = why_unsupported(cupti_, current_.device); !reason.empty()) {
      throw core::Unavailable("hardware counters of this GPU cannot be read: " + reason);
    }
    auto chip = params_of<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
    chip.deviceIndex = static_cast<std::size_t>(current_.device);
    cupti_.check(cupti_.chip_name(&chip), "asking for the chip");
    chip_ = chip.pChipName;
    ask_availability();
  }
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;
  ~RangeProfiler() override { RangeProfiler::cancel(); }

  [[nodiscard]] std::string chip() const override { return chip_; }

  void begin(const CounterSet& set, std::size_t max_ranges) override {
    cancel();
    config_ = std::make_unique<CounterConfig>(cupti_, chip_, availability_, set);
    auto enable = params_of<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
    enable.ctx = current_.context;
    cupti_.check(cupti_.enable(&enable), "taking the counters");
    profiler_ = enable.pRangeProfilerObject;
    make_counter_data(max_ranges);
    auto config =
        params_of<CUpti_RangeProfiler_SetConfig_Params>(CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
    config.pRangeProfilerObject = profiler_;
    config.configSize = config_->image().size();
    config.pConfig = config_->image().data();
    config.counterDataImageSize = counter_data_.size();
    config.pCounterDataImage = counter_data_.data();
    config.range = CUPTI_UserRange;
    config.replayMode = CUPTI_UserReplay;
    config.maxRangesPerPass = max_ranges;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.targetNestingLevel = 1;
    cupti_.check(cupti_.set_config(&config), "setting the counters up");
  }

  [[nodiscard]] int passes() const override { return config_ == nullptr ? 0 : config_->passes(); }

  void begin_pass() override {
    auto params = params_of<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.start(&params), "beginning a pass");
  }

  void begin_range(std::size_t id) override {
    const std::string name = std::to_string(id);
    auto params =
        params_of<CUpti_RangeProfiler_PushRange_Params>(CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = profiler_;
    params.pRangeName = name.c_str();
    cupti_.check(cupti_.push_range(&params), "beginning a range");
  }

  void end_range() override {
    auto params =
        params_of<CUpti_RangeProfiler_PopRange_Params>(CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.pop_range(&params), "ending a range");
  }

  bool end_pass() override {
    auto params = params_of<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.stop(&params), "ending a pass");
    return params.isAllPassSubmitted != 0;
  }

  [[nodiscard]] std::vector<CountedRange> take() override {
    decode();
    auto info = params_of<CUpti_RangeProfiler_GetCounterDataInfo_Params>(
        CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE);
    info.pCounterDataImage = counter_data_.data();
    info.counterDataImageSize = counter_data_.size();
    cupti_.check(cupti_.counter_data_info(&info), "reading counters");
    std::vector<CountedRange> ranges;
    for (std::size_t i = 0; i < info.numTotalRanges; ++i) {
      ranges.push_back({.id = id_of(i), .values = config_->evaluate(counter_data_, i)});
    }
    cancel();
    return ranges;
  }

  void cancel() noexcept override {
    if (profiler_ != nullptr) {
      auto params =
          params_of<CUpti_RangeProfiler_Disable_Params>(CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
      params.pRangeProfilerObject = std::exchange(profiler_, nullptr);
      static_cast<void>(cupti_.disable(&params));
    }
    config_.reset();
  }

 private:
  /// The first call that fails if counters are restricted.
  void ask_availability() {
    auto params = params_of<CUpti_Profiler_GetCounterAvailability_Params>(
        CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
    params.ctx = current_.context;
    cupti_.check(cupti_.counter_availability(&params), "asking which counters there are");
    availability_.resize(params.counterAvailabilityImageSize);
    params.pCounterAvailabilityImage = availability_.data();
    cupti_.check(cupti_.counter_availability(&params), "asking which counters there are");
  }

  void make_counter_data(std::size_t max_ranges) {
    auto size = params_of<CUpti_RangeProfiler_GetCounterDataSize_Params>(
        CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
    size.pRangeProfilerObject = profiler_;
    size.pMetricNames = config_->names().data();
    size.numMetrics = config_->names().size();
    size.maxNumOfRanges = max_ranges;
    size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(max_ranges);
    cupti_.check(cupti_.counter_data_size(&size), "making room for counters");
    counter_data_.assign(size.counterDataSize, 0);
    auto initialize = params_of<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(
        CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
    initialize.pRangeProfilerObject = profiler_;
    initialize.counterDataSize = counter_data_.size();
    initialize.pCounterData = counter_data_.data();
    cupti_.check(cupti_.counter_data_initialize(&initialize), "making room for counters");
  }

  void decode() {
    auto params =
        params_of<CUpti_RangeProfiler_DecodeData_Params>(CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.decode(&params), "decoding counters");
    if (params.numOfRangeDropped > 0) {
      throw core::Unavailable(fmt::format("CUPTI lost the counters of {} ranges", params.numOfRangeDropped));
    }
  }

  [[nodiscard]] std::size_t id_of(std::size_t range) const {
    auto params = params_of<CUpti_RangeProfiler_CounterData_GetRangeInfo_Params>(
        CUpti_RangeProfiler_CounterData_GetRangeInfo_Params_STRUCT_SIZE);
    params.pCounterDataImage = counter_data_.data();
    params.counterDataImageSize = counter_data_.size();
    params.rangeIndex = range;
    params.rangeDelimiter = "/";
    cupti_.check(cupti_.range_info(&params), "reading counters");
    std::size_t id = 0;
    std::from_chars(params.rangeName, params.rangeName + std::strlen(params.rangeName), id);
    return id;
  }

  ProfilerLibrary cupti_;
  CurrentContext current_;
  std::string chip_;
  std::vector<std::uint8_t> availability_;
  std::unique_ptr<CounterConfig> config_;  ///< of the current set
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<std::uint8_t> counter_data_;
};

}  // namespace

std::unique_ptr<DeviceCounters> open_device_counters() { return std::make_unique<RangeProfiler>(); }

int counter_passes(const std::string& chip, const CounterSet& set) {
  const ProfilerLibrary cupti = ProfilerLibrary::load();
  return CounterConfig(cupti, chip, {}, set).passes();
}

}  // namespace rooflm::trace
