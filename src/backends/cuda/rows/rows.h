// Shared by the kernel table of the CUDA backend. Each .cpp of this folder binds cuBLASLt, cuDNN or launchers
// of kernels/ to ops, for fp32, bf16 and fp16, and defines its rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/context.h"
#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/stream.h"
#include "backends/cuda/kernels/token_places.h"
#include "backends/op_view.h"
#include "program/pieces.h"
#include "program/scores.h"

namespace rooflm::backends::cuda {

using OpView = backends::OpView<Context>;
using MakerRow = backends::MakerRow<Context>;
using MakerRows = backends::MakerRows<Context>;

/// Operands, cast to their element type.
inline const float* floats(const void* data) { return static_cast<const float*>(data); }
inline float* floats(void* data) { return static_cast<float*>(data); }
inline const std::int32_t* ids(const void* data) { return static_cast<const std::int32_t*>(data); }

/// Bytes of a workspace, in the type of KernelInfo.
inline std::int64_t as_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

/// The positions of the `own` tokens of the op's rank in their sequences.
inline TokenPlaces places_of(const OpView& v, std::int64_t own) {
  const auto pieces = program::Pieces::of(v.op.attrs);
  return TokenPlaces::of(pieces.parts, pieces.index, own);
}

/// What an op on scores of `seq` positions does with them. A window that hides nothing is none.
inline ScoreRules rules_of(const program::Op& op, std::int64_t seq) {
  const auto scores = program::Scores::of(op.attrs);
  return {.window = scores.window < seq ? scores.window : 0,
          .scale = op.attrs.has("scale") ? static_cast<float>(scores.scale) : 0.0F,
          .cap = static_cast<float>(scores.cap),
          .alibi = scores.alibi,
          .sinks = program::sinks_of(op) != program::kNone};
}
/// The sinks of an op, its input `index` or none.
struct SinksInput {
  std::size_t index;
  bool exists;
  core::DType dtype;

  SinksInput(const OpView& v, std::size_t input)
      : index(input), exists(v.has_in(input)), dtype(exists ? v.in(input).dtype : core::DType::f32) {}
  [[nodiscard]] Sinks of(const KernelArgs& args) const {
    return {.data = exists ? args.in[index] : nullptr, .dtype = dtype};
  }
};

/// Whether the gradient also writes the output of its forward op again.
inline bool rebuilds(const OpView& v) { return v.op.attrs.flag("rebuilds"); }

/// The rows of all files of this folder; the build generates the list.
MakerRows kernels();

}  // namespace rooflm::backends::cuda
