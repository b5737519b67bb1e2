// Ops on keys and values that are kept in blocks (ops/paged_cache.cpp). Processors alone have kernels of
// them, so they are not in ops::all().
#pragma once

#include "program/program.h"

namespace rooflm::program::ops {

extern const OpDef kPagedAttention, kPickRows;

}  // namespace rooflm::program::ops
