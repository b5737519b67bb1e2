// What CUPTI counts, and values from its counter data.
#include "trace/cupti/counter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace rooflm::trace {

CounterConfig::CounterConfig(const ProfilerLibrary& cupti, const std::string& chip,
                             std::span<const std::uint8_t> availability, const CounterSet& set)
    : cupti_(&cupti), host_(nullptr, Close{&cupti}) {
  auto params =
      params_of<CUpti_Profiler_Host_Initialize_Params>(CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  if (cupti.host_initialize(&params) != CUPTI_SUCCESS) {
    throw core::UsageError(fmt::format("CUPTI knows no counters of the chip '{}'", chip));
  }
  host_.reset(params.pHostObject);
  add_metrics(set);
  make_image();
}

void CounterConfig::Close::operator()(CUpti_Profiler_Host_Object* host) const {
  auto params =
      params_of<CUpti_Profiler_Host_Deinitialize_Params>(CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
  params.pHostObject = host;
  static_cast<void>(cupti->host_deinitialize(&params));
}

void CounterConfig::add_metrics(const CounterSet& set) {
  for (const CounterMetric& metric : set.metrics) {
    const char* name = metric.metric.c_str();
    auto known = params_of<CUpti_Profiler_Host_GetMetricProperties_Params>(
        CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE);
    known.pHostObject = host_.get();
    known.pMetricName = name;
    if (cupti_->metric_properties(&known) == CUPTI_SUCCESS) metrics_.push_back(metric);
  }
  if (metrics_.empty()) throw core::Unavailable(fmt::format("the chip has no counters of '{}'", set.name));
  for (const CounterMetric& metric : metrics_) names_.push_back(metric.metric.c_str());
  auto params = params_of<CUpti_Profiler_Host_ConfigAddMetrics_Params>(
      CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  params.pHostObject = host_.get();
  params.ppMetricNames = names_.data();
  params.numMetrics = names_.size();
  cupti_->check(cupti_->add_metrics(&params), fmt::format("choosing the counters '{}'", set.name));
}

void CounterConfig::make_image() {
  auto size = params_of<CUpti_Profiler_Host_GetConfigImageSize_Params>(
      CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  size.pHostObject = host_.get();
  cupti_->check(cupti_->config_size(&size), "scheduling counters");
  image_.resize(size.configImageSize);
  auto image = params_of<CUpti_Profiler_Host_GetConfigImage_Params>(
      CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  image.pHostObject = host_.get();
  image.configImageSize = image_.size();
  image.pConfigImage = image_.data();
  cupti_->check(cupti_->config_image(&image), "scheduling counters");
  auto passes = params_of<CUpti_Profiler_Host_GetNumOfPasses_Params>(
      CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  passes.configImageSize = image_.size();
  passes.pConfigImage = image_.data();
  cupti_->check(cupti_->passes(&passes), "scheduling counters");
  passes_ = static_cast<int>(passes.numOfPasses);
}

std::vector<CountedValue> CounterConfig::evaluate(std::span<const std::uint8_t> counter_data,
                                                  std::size_t range) {
  std::vector<double> counts(names_.size());
  auto params = params_of<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(
      CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
  params.pHostObject = host_.get();
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = range;
  params.ppMetricNames = names_.data();
  params.numMetrics = names_.size();
  params.pMetricValues = counts.data();
  cupti_->check(cupti_->evaluate(&params), "reading counters");
  std::vector<CountedValue> values;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (!std::isfinite(counts[i])) continue;  // not counted
    const CounterMetric& metric = metrics_[i];
    const auto known = std::ranges::find(values, metric.name, &CountedValue::name);
    CountedValue& value =
        known != values.end()
            ? *known
            : values.emplace_back(CountedValue{.name = metric.name, .value = 0, .unit = metric.unit});
    value.value += metric.weight * counts[i];
  }
  return values;
}

}  // namespace rooflm::trace
