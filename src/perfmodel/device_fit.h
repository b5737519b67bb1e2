// What a step is on a device that is known by its description alone.
#pragma once

#include "compile/recipe.h"
#include "devices/device.h"
#include "perfmodel/roofline.h"

namespace rooflm::perfmodel {

/// Sets what the fused engine does differently on this device. The one place where a device's wishes become
/// options.
void fit_to_device(compile::StepOptions& step, const devices::Device& device);

/// What the device can do by its datasheet; without rates where nobody published them.
Machine datasheet_machine(const devices::Device& device);

}  // namespace rooflm::perfmodel
