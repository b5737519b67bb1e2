// Token ids come from outside: they are checked before a kernel uses them as row numbers.
#pragma once

#include "backends/token_ids.h"

namespace rooflm::backends::cpu {

using backends::check_ids;

}  // namespace rooflm::backends::cpu
