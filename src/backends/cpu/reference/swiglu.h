// Makers of SwiGLU and its gradient, for kernels that cast what they make.
#pragma once

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu::reference {

Kernel make_swiglu(const OpView& v);
Kernel make_swiglu_backward(const OpView& v);

}  // namespace rooflm::backends::cpu::reference
