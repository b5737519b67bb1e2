// What the name of a kernel tells: its library, its class, and for a GEMM the tile, instruction and
// precision.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/rows.h"

namespace rooflm::report {

/// The class of unknown kernels.
inline constexpr std::string_view kUnknownClass = "unknown";
/// The class of what devices send each other: no part of any module's own time.
inline constexpr std::string_view kCollectiveClass = "collective";

/// "" for what the name does not tell.
struct KernelName {
  /// Without return type, namespaces and parameters; of template arguments, only the function that a template
  /// for any function runs, and its type: "vectorized_elementwise_kernel<MulFunctor, bf16>".
  std::string short_name{};
  std::string base_name{};  ///< without any template arguments
  std::string library{};    ///< "cuBLASLt", "cuBLAS", "CUTLASS", "cuDNN", "Triton", "NCCL", "PyTorch", "CUB",
                            /// < "rooflm", ...
  /// "gemm", "attention", "norm", "elementwise", "optimizer", "embedding", "loss", "copy", "collective",
  /// "cast", "softmax"; kUnknownClass.
  std::string kernel_class{};
  std::string tile{};         ///< of a GEMM: "128x256x64"; without the last where only a tile of C is named
  std::string stages{};       ///< "6"
  std::string cluster{};      ///< "2x1"
  std::string instruction{};  ///< "wgmma", "mma m16n8k16", "wmma", "ffma"
  std::string precision{};    ///< of the operands: "bf16", "tf32", "fp8", ...
};

/// From a demangled name, by how libraries build their names: nvjet_TYPES_TILE_KxSTAGES_CLUSTER_... (cuBLASLt
/// on Hopper and later), smNN_xmma_..._tilesizeMxNxK_..., cutlass_NN_..._TILE_KxSTAGES_...,
/// ARCHITECTURE_..._gemm_TYPE_TILE_..., cudnn_..., triton_..., namespaces.
KernelName parse_kernel_name(std::string_view name);

/// The short names of kernels that stand in one table, each once: where several would have the same one, with
/// what differs in the whole names, in brackets.
std::vector<std::string> distinct_short_names(std::span<const std::string_view> names);

/// The same for the names of a run, by the whole name.
std::map<std::string, std::string, std::less<>> short_kernel_names(
    std::span<const record::ActivityName> names);

/// The class of a kernel that belongs to `op` (nullptr: not known). The class follows from the op; only the
/// name shows that a kernel of a matmul just copies or converts.
std::string class_of_kernel(const KernelName& name, const record::Op* op);

}  // namespace rooflm::report
