// Some multiprocessors of a device, held while something else is measured on the others.
#pragma once

#include <cstdint>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// Blocks that do nothing and leave no room for others, as updates that run apart.
class Occupant {
 public:
  /// Of a device that is selected; 0 blocks hold nothing.
  explicit Occupant(int blocks);
  Occupant(const Occupant&) = delete;
  Occupant& operator=(const Occupant&) = delete;
  ~Occupant();

  /// Returns when every block has its multiprocessor, or after a second when there is none for some. What is
  /// submitted meanwhile must be loaded already, and nothing may wait for the whole device.
  void start();
  void stop();

 private:
  int blocks_;
  StreamHandle stream_;
  PinnedArray<std::uint32_t> flags_;  ///< whether to stop, then whether each block has begun
  bool runs_ = false;
};

}  // namespace rooflm::backends::cuda
