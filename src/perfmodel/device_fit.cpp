// What a step is on a device that is known by its description alone.
#include "perfmodel/device_fit.h"

#include <cstddef>
#include <cstdint>

namespace rooflm::perfmodel {

void fit_to_device(compile::StepOptions& step, const devices::Device& device) {
  const devices::Rewrites& wants = device.rewrites;
  const std::size_t element = wants.logits_in_compute_dtype ? core::size_of(step.dtype) : sizeof(float);
  step.loss_chunk_bytes = wants.logits_bytes * static_cast<std::int64_t>(sizeof(float) / element);
  step.logits_padding = wants.logits_padding;
  // Whether updates sum gradients is an option's, whatever the device.
  const bool sums = step.rewrites.has(compile::Rewrite::sum_in_update);
  step.rewrites = compile::parse_rewrites(wants.names);
  step.rewrites.set(compile::Rewrite::sum_in_update, sums);
  step.background = wants.background;
}

Machine datasheet_machine(const devices::Device& device) {
  Machine machine{.flop_per_s = device.peak_flop_per_s, .levels = {}};
  if (!device.memory.empty() && device.memory.back().byte_per_s > 0)
    machine.levels.push_back(
        {.name = device.memory.back().name, .byte_per_s = device.memory.back().byte_per_s});
  return machine;
}

}  // namespace rooflm::perfmodel
