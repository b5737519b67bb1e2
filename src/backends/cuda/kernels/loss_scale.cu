// Dynamic loss scaling: a kernel with one thread.
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/loss_scale.cuh"

namespace rooflm::backends::cuda {
namespace {

__global__ void loss_scale(const float* hyper, const float* norm, float* state, float* scaled_hyper,
                           float* true_norm) {
  const float inverse = 1.0F / scale_of(state);
  const bool is_finite = isfinite(*norm);
  for (int i = 0; i < 3; ++i) scaled_hyper[i] = hyper[i];
  scaled_hyper[3] = is_finite ? inverse : 0.0F;
  *true_norm = *norm * inverse;
  const float good = state[program::kGoodUpdates] + 1;
  if (!is_finite) {
    state[program::kScaleExponent] -= 1;
    state[program::kSkippedUpdates] += 1;
    state[program::kGoodUpdates] = 0;
  } else if (good >= program::kUpdatesUntilGrowth) {
    state[program::kScaleExponent] += 1;
    state[program::kGoodUpdates] = 0;
  } else {
    state[program::kGoodUpdates] = good;
  }
}

}  // namespace

void launch_loss_scale(Stream stream, const float* hyper, const float* norm, float* state,
                       float* scaled_hyper, float* true_norm) {
  loss_scale<<<1, 1, 0, stream>>>(hyper, norm, state, scaled_hyper, true_norm);
  check_launch("loss_scale");
}

}  // namespace rooflm::backends::cuda
