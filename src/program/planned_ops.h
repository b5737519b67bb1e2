// Ops of models that can be planned and not run: no backend has a kernel for them yet, so they are not in
// ops::all().
#pragma once

#include "program/program.h"

namespace rooflm::program::ops {

// map.cpp
extern const OpDef kMap, kMapBackward;

}  // namespace rooflm::program::ops
