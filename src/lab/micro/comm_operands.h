// The buffers of one collective, their values, and the check of its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "lab/micro/comm_bench.h"
#include "program/program.h"

namespace rooflm::lab {

/// One rank's side of a collective: kernels of the backend, which has joined the others, on buffers of its
/// device. Values are small whole numbers, so that sums are exact in every dtype.
class CommOperands {
 public:
  /// Throws core::OutOfMemory, core::Unavailable where the device has no kernel.
  CommOperands(backends::Backend& backend, const CommProblem& problem, int ranks, int rank);

  /// Fills in the inputs, and NaN for the results.
  void fill();
  /// Submits it once. All ranks call it.
  void run();
  /// Wrong elements of the result after one run.
  [[nodiscard]] std::int64_t wrong() const;

 private:
  void add_op(const program::OpDef& def, program::TensorId x);
  void make_buffers();
  static constexpr int kSum = -1;  ///< in place of a rank: what all ranks' values add up to
  [[nodiscard]] std::int64_t period() const;
  [[nodiscard]] float input(int rank, std::int64_t element) const;
  [[nodiscard]] float expected(int rank, std::int64_t element) const;
  [[nodiscard]] std::vector<std::byte> bytes_of(int rank, std::int64_t first, std::int64_t count) const;
  [[nodiscard]] std::int64_t wrong_in(std::int64_t begin, const std::vector<std::byte>& expected) const;

  backends::Backend* backend_;
  CommProblem problem_;
  int ranks_, rank_;
  program::Program program_;
  std::vector<backends::Kernel> kernels_;
  backends::Allocation in_, out_;  ///< one of them is empty in place
  void* from_ = nullptr;
  void* to_ = nullptr;
};

}  // namespace rooflm::lab
