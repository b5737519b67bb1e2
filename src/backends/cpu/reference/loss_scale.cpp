// loss_scale: whether an update with scaled gradients is applied, and the next scale.
#include "program/loss_scale.h"

#include <cmath>
#include <span>

#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_loss_scale(const OpView& v) {
  for (std::size_t i = 0; i < v.op.inputs.size(); ++i) {
    if (v.in(i).dtype != DType::f32) return {};
  }
  return [](const KernelArgs& args) {
    constexpr std::size_t kHyper = 4;
    const std::span hyper(static_cast<const float*>(args.in[0]), kHyper);
    const float norm = *static_cast<const float*>(args.in[1]);
    const std::span scaled(static_cast<float*>(args.out[0]), kHyper);
    const std::span state(static_cast<float*>(args.out[2]), std::size_t{program::kLossScaleState});
    const double inverse = 1 / program::loss_scale_of(state.data());
    const bool is_finite = std::isfinite(norm);
    std::copy(hyper.begin(), hyper.end(), scaled.begin());
    scaled[kHyper - 1] = is_finite ? static_cast<float>(inverse) : 0.0F;
    *static_cast<float*>(args.out[1]) = static_cast<float>(static_cast<double>(norm) * inverse);
    state[program::kGoodUpdates] += 1;
    if (!is_finite) {
      state[program::kScaleExponent] -= 1;
      state[program::kSkippedUpdates] += 1;
      state[program::kGoodUpdates] = 0;
    } else if (state[program::kGoodUpdates] >= program::kUpdatesUntilGrowth) {
      state[program::kScaleExponent] += 1;
      state[program::kGoodUpdates] = 0;
    }
  };
}

MakerRows loss_scale_rows() {
  namespace ops = program::ops;
  return {{&ops::kLossScale, make_loss_scale, "reference::loss_scale"}};
}

}  // namespace rooflm::backends::cpu::reference
