// The weights of an exponential moving average.
#pragma once

namespace rooflm::core {

/// average = old * average + fresh * value, where old + fresh = 1. Each weight is rounded once: the fp32
/// difference 1 - 0.999F is 1.3e-5 below 0.001, which a bias correction by 1 - 0.999^t would not take back.
struct MovingAverage {
  float old = 0;
  float fresh = 1;

  constexpr MovingAverage() = default;
  constexpr explicit MovingAverage(double beta)
      : old(static_cast<float>(beta)), fresh(static_cast<float>(1 - beta)) {}
};

}  // namespace rooflm::core
