// Finding the kernel of an op in a backend's table.
#include "backends/backend.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rooflm::backends {

Kernel Backend::make_kernel(const program::Program& program, const program::Op& op) const {
  for (const KernelRow& row : table_) {
    if (row.op != op.def) continue;
    if (Kernel kernel = row.make(program, op)) return kernel;
  }
  std::string dtypes;
  for (const program::TensorId id : op.inputs) {
    if (id != program::kNone) dtypes += fmt::format(" {}", core::name_of(program.tensor(id).dtype));
  }
  throw core::Unavailable(fmt::format("{} has no kernel for {} in {} with inputs of{}", device(),
                                      op.def->name, op.scope, dtypes));
}

}  // namespace rooflm::backends
