// The position of a rank's token, on the device.
#pragma once

#include "backends/cuda/kernels/token_places.h"

namespace rooflm::backends::cuda {

__device__ inline std::int64_t place_of(const TokenPlaces& places, std::int64_t t) {
  return t + (t < places.piece ? places.first : places.second);
}

}  // namespace rooflm::backends::cuda
