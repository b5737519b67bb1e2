// Which op the device has come to: the one thing that can still be read after a kernel has ended its context.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A number in the host's memory that the stream itself writes before an op. A write costs the device two to
/// three microseconds, so each op is marked when it first runs and not again: an engine's first step is. In
/// recordings every kSpacing-th op is marked by a kernel beside the work.
class Progress {
 public:
  /// Marks nothing where the driver cannot.
  Progress();

  /// A number for an op, from 1 on.
  std::uint32_t add(std::string op);
  static constexpr std::uint32_t kSpacing = 64;
  /// Submits "OP begins".
  void begin(cudaStream_t stream, std::uint32_t op) const;
  /// Submits "what was recorded has come to OP".
  void pass(cudaStream_t stream, std::uint32_t op) const;
  /// All that was marked has run.
  void clear();
  /// The op that began last and did not end, or, with `is_near`, that or one of the kSpacing after it; ""
  /// when nothing was marked.
  struct Place {
    std::string op;
    bool is_near = false;
  };
  [[nodiscard]] Place current() const;

 private:
  using WriteValue = int (*)(cudaStream_t, std::uintptr_t, std::uint32_t, unsigned int);
  PinnedArray<std::uint32_t> mark_;  ///< a single one
  WriteValue write_ = nullptr;
  std::vector<std::string> ops_;
};

}  // namespace rooflm::backends::cuda
