// Ops of models that can be planned and not run: no backend has a kernel for them yet, so they are not in
// ops::all().
#pragma once

#include "program/program.h"

namespace rooflm::program::ops {

// head_norm.cpp
extern const OpDef kHeadNorm, kHeadNormBackward;
// map.cpp
extern const OpDef kMap, kMapBackward, kActivate, kActivateBackward;

}  // namespace rooflm::program::ops
