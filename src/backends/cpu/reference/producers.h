// Makers of kernels that other files compose or choose.
#pragma once

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu::reference {

Kernel make_swiglu(const OpView& v);
Kernel make_swiglu_backward(const OpView& v);
Kernel make_add(const OpView& v);
Kernel make_layernorm(const OpView& v);
Kernel make_rmsnorm(const OpView& v);

}  // namespace rooflm::backends::cpu::reference
