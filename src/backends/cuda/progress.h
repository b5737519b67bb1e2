// Tracks which op the device runs, for the error message when a kernel fails: a failed kernel destroys the
// CUDA context, and only host memory can be read then.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A number in pinned host memory that the stream writes before an op runs. A write takes the device two to
/// three microseconds, so an op is marked only when it first runs, which is in an engine's first step. In
/// recordings every kSpacing-th op is marked by a kernel on a side branch.
class Progress {
 public:
  /// Marks nothing if the driver lacks stream memory operations.
  Progress();

  /// Registers an op; returns its number, from 1 on.
  std::uint32_t add(std::string op);
  static constexpr std::uint32_t kSpacing = 64;
  /// Submits "OP begins".
  void begin(cudaStream_t stream, std::uint32_t op) const;
  /// Submits "the recording has reached OP".
  void pass(cudaStream_t stream, std::uint32_t op) const;
  /// Clears the marks; call it when all submitted work has run.
  void clear();
  /// The op that began last and has not ended; with `is_near` that op or one of the kSpacing ops after it. ""
  /// if nothing was marked.
  struct Place {
    std::string op;
    bool is_near = false;
  };
  [[nodiscard]] Place current() const;

 private:
  using WriteValue = int (*)(cudaStream_t, std::uintptr_t, std::uint32_t, unsigned int);
  PinnedArray<std::uint32_t> mark_;  ///< a single element
  WriteValue write_ = nullptr;
  std::vector<std::string> ops_;
};

}  // namespace rooflm::backends::cuda
