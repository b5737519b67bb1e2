// Which op the device runs, for the message when a kernel fails: a failed kernel ends the CUDA context, and
// host memory is all that can be read then.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A number in host memory that the stream writes before an op runs. A write takes the device two to three
/// microseconds, so an op is marked only when it first runs, which is in an engine's first step. In
/// recordings every kSpacing-th op is marked, by a kernel on a stream beside the work.
class Progress {
 public:
  /// Marks nothing where the driver cannot.
  Progress();

  /// A number for an op, from 1 on.
  std::uint32_t add(std::string op);
  static constexpr std::uint32_t kSpacing = 64;
  /// Submits "OP begins".
  void begin(cudaStream_t stream, std::uint32_t op) const;
  /// Submits "the recording has reached OP".
  void pass(cudaStream_t stream, std::uint32_t op) const;
  /// Forgets the marks: all that was submitted has run.
  void clear();
  /// The op that began last and has not ended; with `is_near` that op or one of the kSpacing after it. ""
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
