// Errors for counts that do not fit 64 bits.
#include "core/checked.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rooflm::core {

void throw_product_too_large(std::int64_t a, std::int64_t b) {
  throw UsageError(fmt::format("{} times {} does not fit 64 bits: choose smaller sizes", a, b));
}

void throw_sum_too_large(std::int64_t a, std::int64_t b) {
  throw UsageError(fmt::format("{} plus {} does not fit 64 bits: choose smaller sizes", a, b));
}

}  // namespace rooflm::core
