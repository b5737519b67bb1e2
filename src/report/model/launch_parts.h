// Grids and blocks of the parts of a layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"
#include "report/model/traced_kernels.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// Kernels of one phase and part ("attention/qk").
struct PartLaunches {
  std::string phase{}, part{};
  std::optional<std::int64_t> heads{};  ///< of the model
  double launches = 0;                  ///< kernels per step
  // Of the kernel that takes the most time.
  std::string grid{}, block{};
  std::int64_t blocks = 0;
  std::string kernel{};
};

const TypedColumns<PartLaunches>& part_launch_columns();
std::vector<PartLaunches> part_launches(const RunData& run, const TracedKernels& kernels);

}  // namespace rooflm::report
