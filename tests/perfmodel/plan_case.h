// A plan of a preset on a device of the catalog, in bf16.
#pragma once

#include "perfmodel/plan.h"

namespace rooflm::tests {

struct PlanCase {
  perfmodel::PlanPoint point;
  perfmodel::Setting setting;

  [[nodiscard]] perfmodel::Plan plan() const { return perfmodel::make_plan(point, setting); }
};

inline PlanCase plan_case(const char* model, const compile::Sharding& sharding, std::int64_t micro_batches,
                          const char* framework, const char* device = "h100-sxm") {
  PlanCase made;
  made.setting.device = devices::find_device(device);
  made.setting.framework = perfmodel::find_framework(framework);
  made.setting.cluster = perfmodel::cluster_of(made.setting.device);
  made.setting.memory_limit_bytes = made.setting.device.usable_bytes();
  made.point.config = model::preset(model);
  made.point.step.dtype = core::DType::bf16;
  made.point.step.sharding = sharding;
  made.point.micro_batch = 1;
  made.point.seq = 1024;
  made.point.micro_batches = micro_batches;
  perfmodel::fit_to_framework(made.point.step, made.setting.framework);
  return made;
}

}  // namespace rooflm::tests
