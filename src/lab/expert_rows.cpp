// How many rows each expert had in the last step of an engine.
#include "lab/expert_rows.h"

#include <algorithm>

#include "core/scope.h"
#include "program/ops.h"

namespace rooflm::lab {

namespace {

constexpr std::int64_t kMostRows = 1'000'000;

}  // namespace

ExpertReader::ExpertReader(engines::Engine& engine, std::int64_t steps) : engine_(&engine) {
  const program::Program& program = engine.program();
  std::int64_t of_step = 0;
  for (const program::Op& op : program.ops) {
    if (!op.is(program::ops::kDispatch)) continue;
    const program::Tensor& offsets = program.tensor(op.outputs[2]);
    if (offsets.role != program::Role::result) continue;  // of the same layer once more
    layers_.push_back({.layer = core::Scope(op.scope).layer().value_or(0),
                       .micro_batch = op.micro_batch,
                       .offsets = offsets.name});
    of_step += offsets.shape.numel() - 1;
  }
  const std::int64_t most_steps = std::max<std::int64_t>(1, kMostRows / std::max<std::int64_t>(1, of_step));
  every_ = std::max<std::int64_t>(1, (steps + most_steps - 1) / most_steps);
}

void ExpertReader::read(std::int64_t step, std::vector<record::ExpertRows>& rows) const {
  if (step % every_ != 0) return;
  for (const Layer& layer : layers_) {
    const auto offsets = engine_->io().read<std::int32_t>(layer.offsets);
    for (std::size_t expert = 0; expert + 1 < offsets.size(); ++expert) {
      rows.push_back({.step = step,
                      .layer = layer.layer,
                      .micro_batch = layer.micro_batch,
                      .expert = static_cast<std::int64_t>(expert),
                      .rows = offsets[expert + 1] - offsets[expert]});
    }
  }
}

}  // namespace rooflm::lab
