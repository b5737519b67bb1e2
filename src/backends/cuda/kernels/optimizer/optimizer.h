// The optimizer step for lists of tensors: norms, adamw, sgd, lion. Everything is fp32, except that copies of
// parameters are bf16 or fp16, as gradients may be, and moments of adamw bf16 or 8 bits. A launcher takes the
// whole list. The pointers are kernel arguments, a few dozen tensors per launch, so no table in device memory
// is needed. Launchers only submit. They throw std::runtime_error if a launch fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cuda/kernels/peer_sum.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"
#include "core/dynamic_8bit.h"
#include "core/moving_average.h"

namespace rooflm::backends::cuda {

struct NormedTensor {
  std::int64_t count = 0;
  const void* gradient = nullptr;
  core::DType dtype = core::DType::f32;
};

/// *square = sum over all tensors of g^2, *norm = its root, summed in double and in a fixed order; either may
/// be null. `workspace` has global_norm_workspace_bytes bytes for the tensors' sizes, aligned to 16.
void launch_square_sum(Stream stream, std::span<const NormedTensor> tensors, double* square, float* norm,
                       void* workspace);
/// *norm = sqrt(sum over squares [count])
void launch_root(Stream stream, std::int64_t count, const double* squares, float* norm);
[[nodiscard]] std::size_t global_norm_workspace_bytes(std::span<const std::int64_t> counts);

/// Number of launches of launch_square_sum, and of launch_adamw, launch_sgd or launch_lion, for tensors of
/// these sizes.
[[nodiscard]] std::int64_t global_norm_launches(std::span<const std::int64_t> counts);
[[nodiscard]] std::int64_t update_launches(std::span<const std::int64_t> counts);

/// Parameters of an update. hyper: fp32 [4] in device memory: learning rate, 1 - beta1^t, 1 - beta2^t and,
/// with `scaled`, a factor of the gradients; if it is 0 nothing is updated. norm: in device memory; null: no
/// clipping. Gradients are multiplied by min(1, max_norm / (norm + 1e-6)); a NaN norm makes all parameters
/// NaN.
struct UpdateStep {
  const float* hyper = nullptr;
  const float* norm = nullptr;
  float max_norm = 0;
  float weight_decay = 0;
  core::MovingAverage beta1{}, beta2{};  // adamw, lion
  float eps = 0;                         // adamw
  bool scaled = false;
  bool half_moments = false;  ///< adamw's moments are bf16, rounded at random; with one rank alone
  core::DType copy_dtype = core::DType::bf16;
};

/// A tensor that is updated in place. copy, of copy_dtype, may be null. moment1 and moment2 are adamw's,
/// moment1 lion's; fp32 but with half_moments.
/// Halved parameters (core/halves.h; `halves` is the dtype of their upper halves) have no copy, a count that
/// is a multiple of 8, and 16-byte aligned addresses.
struct UpdatedTensor {
  std::int64_t count = 0;
  void* parameter = nullptr;
  const void* gradient = nullptr;
  void* moment1 = nullptr;
  void* moment2 = nullptr;
  void* copy = nullptr;
  core::DType halves = core::DType::f32;  ///< bf16 or fp16; fp32: the parameter is whole
  core::DType gradient_dtype = core::DType::f32;
};

/// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, with c1, c2 from `hyper`:
/// p = (1 - lr * weight_decay) p - lr / c1 * m / (sqrt(v / c2) + eps); copy = p in copy_dtype.
/// With several ranks in `peers`, g is the sum of their gradients, in rank order in fp32, rounded to the
/// dtype of the gradient.
void launch_adamw(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                  const PeerPlaces& peers = {});

/// p = (1 - lr * weight_decay) p - lr * g; copy = p in copy_dtype.
void launch_sgd(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                const PeerPlaces& peers = {});

/// u = sign(beta1 m + (1 - beta1) g), p = (1 - lr * weight_decay) p - lr * u, m = beta2 m + (1 - beta2) g.
void launch_lion(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                 const PeerPlaces& peers = {});

/// A tensor whose moments have 8 bits (core/dynamic_8bit.h): moment1 and moment2 are its codes, packed by
/// four, and these the largest magnitudes of their blocks.
struct CodedTensor : UpdatedTensor {
  float* size1 = nullptr;
  float* size2 = nullptr;
};

/// core::Dynamic8Bit with a sign, [0], and without. Blocks copy it to shared memory, 16 bytes at a time.
struct alignas(16) CodeTables {
  float values[2][256];
  float borders[2][256];
  std::uint8_t first_codes[2][2 * core::Dynamic8Bit::kCells];
};

/// As launch_adamw, with moments of 8 bits. `tables` are in device memory.
void launch_adamw_8bit(Stream stream, const UpdateStep& step, std::span<const CodedTensor> tensors,
                       const CodeTables* tables);
[[nodiscard]] std::int64_t adamw_8bit_launches(std::span<const std::int64_t> counts);

}  // namespace rooflm::backends::cuda
