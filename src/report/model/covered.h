// What is known of the work of a recorded program's device: how much of its time has a module, a phase and a
// price, and which kernels have none.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// What work of a device may have: the module it is of (an optimizer counts as one), the phase, and a price:
/// what its kernel has to do.
inline constexpr std::array<std::string_view, 3> kKnown = {"module", "phase", "price"};

struct Covered {
  std::array<double, kKnown.size()> share{};  ///< of device time
  double compiled = 0;                        ///< from torch.compile graphs: kernels of the compiled module
  double whole_tensors = 0;  ///< priced as if each tensor of the call was touched once, as a whole
  /// Kernels, copies and fills that lack something, the longest first.
  struct Lack {
    std::string name{}, full_name{};
    double share = 0;                          ///< of device time, of what lacks most
    std::array<double, kKnown.size()> part{};  ///< what lacks each
    /// "module, price".
    [[nodiscard]] std::string names() const;
  };
  std::vector<Lack> lacks{};
  [[nodiscard]] bool knows_nothing() const {
    return std::ranges::all_of(share, [](double one) { return one == 0; });
  }
};

/// Over all steps that are kept, or the whole recording where there are none. Nothing for other runs than
/// those of programs that are not ours, and without work of a device.
std::optional<Covered> covered_by(const RunData& run);

/// "99.8% has a module, 100.0% a phase, 97.1% a price; without a price: gather_kernel 1.2%, ..."
std::string covered_text(const RunData& run);

/// Of a table with a row for each kernel that lacks something.
const TypedColumns<Covered::Lack>& lack_columns();

}  // namespace rooflm::report
