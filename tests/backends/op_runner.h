// Runs the ops of a small program one by one on a backend, over buffers that a test can read and write.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "tests/backends/op_cases.h"

namespace rooflm::tests {

/// What runs an op: its own kernel, or those of the plain ops that it equals.
enum class Form : std::uint8_t { as_it_is, plain };

/// One buffer per tensor. Contents start random: normal numbers that depend on the tensor's number alone,
/// ids below their limit with one -1 among targets; the case's fixed values; NaN in what ops must write
/// first.
class OpRunner {
 public:
  OpRunner(const Case& c, backends::Backend& backend);

  [[nodiscard]] const program::Program& program() const { return program_; }
  void run(std::size_t op, Form form = Form::as_it_is);
  void run_all();
  /// Runs an op with output 0 in the storage of input `input`, whose contents are lost to it.
  void run_in_place(std::size_t op, std::size_t input, Form form = Form::as_it_is);

  [[nodiscard]] std::vector<double> read(program::TensorId id) const;
  void write(program::TensorId id, const std::vector<double>& values);
  /// Contents of another runner of the same program, on any backend.
  void copy_from(const OpRunner& other);

 private:
  void fill(const Case& c, program::TensorId id, bool is_written);
  void execute(std::size_t op, Form form, std::vector<void*> in, std::vector<void*> out);
  [[nodiscard]] void* address(program::TensorId id) const;

  program::Program program_;
  backends::Backend* backend_;
  std::vector<backends::Allocation> buffers_;
};

/// Whether an op may put output 0 in the place of an input, here: same size and dtype, not read elsewhere.
bool can_run_in_place(const program::Program& program, const program::Op& op);

}  // namespace rooflm::tests
