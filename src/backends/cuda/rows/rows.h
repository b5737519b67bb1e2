// Shared by the kernel table of the CUDA backend. Each .cpp of this folder binds cuBLASLt, cuDNN or launchers
// of kernels/ to ops, for fp32, bf16 and fp16, and defines its rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/context.h"
#include "backends/cuda/kernels/stream.h"
#include "backends/cuda/kernels/token_places.h"
#include "backends/op_view.h"
#include "program/pieces.h"

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

/// Whether the gradient also writes the output of its forward op again.
inline bool rebuilds(const OpView& v) { return v.op.attrs.flag("rebuilds"); }

/// The rows of all files of this folder; the build generates the list.
MakerRows kernels();

}  // namespace rooflm::backends::cuda
