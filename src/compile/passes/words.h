// The words of programs that passes use.
#pragma once

#include "program/groups.h"   // IWYU pragma: export
#include "program/ops.h"      // IWYU pragma: export
#include "program/program.h"  // IWYU pragma: export

namespace rooflm::passes {

namespace ops = program::ops;
using core::DType;
using core::Shape;
using program::Attributes;
using program::Cost;
using program::Group;
using program::Lane;
using program::Op;
using program::OpDef;
using program::Phase;
using program::Program;
using program::Role;
using program::Tensor;
using program::TensorId;

}  // namespace rooflm::passes
