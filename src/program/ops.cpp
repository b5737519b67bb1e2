// The error path shared by the shape rules of all ops.
#include "program/ops.h"

#include "core/error.h"

namespace rooflm::program::ops {

void refuse(const Op& op, const std::string& message) {
  throw core::UsageError(std::string(op.def->name) + " in " + op.scope + ": " + message);
}

}  // namespace rooflm::program::ops
