// Which parts of a kernel's name say whose it is and what it does.
#pragma once

#include <array>
#include <string_view>

namespace rooflm::report {

struct Rule {
  std::string_view part;  ///< of the name in lower case
  std::string_view what;
};

/// The first that is found counts.
inline constexpr std::array kLibraries = {Rule{"rooflm::", "rooflm"},
                                          Rule{"nvjet", "cuBLASLt"},
                                          Rule{"cublaslt", "cuBLASLt"},
                                          Rule{"cudnn", "cuDNN"},
                                          Rule{"nccl", "NCCL"},
                                          Rule{"triton_", "Triton"},
                                          Rule{"_cublas", "cuBLAS"},
                                          Rule{"xmma_gemm", "cuBLAS"},
                                          Rule{"cublas", "cuBLAS"},
                                          Rule{"cijk_", "Tensile"},  // hipBLASLt, rocBLAS
                                          Rule{"miopen", "MIOpen"},
                                          Rule{"ck_tile", "Composable Kernel"},
                                          Rule{"aiter", "AITER"},
                                          Rule{"flash_", "FlashAttention"},
                                          Rule{"flash::", "FlashAttention"},
                                          Rule{"at::native", "PyTorch"},
                                          Rule{"cutlass", "CUTLASS"},
                                          Rule{"cub::", "CUB"},
                                          Rule{"thrust::", "Thrust"},
                                          Rule{"ampere_", "cuBLAS"},
                                          Rule{"turing_", "cuBLAS"},
                                          Rule{"volta_", "cuBLAS"},
                                          Rule{"maxwell_", "cuBLAS"},
                                          Rule{"gemmsn", "cuBLAS"},
                                          Rule{"gemv", "cuBLAS"},
                                          Rule{"memcpy", "driver"},
                                          Rule{"memset", "driver"}};

/// What devices send each other, by the short name alone: "warpAllReduce" may stand among template arguments.
/// NVSHMEM, vLLM, TensorRT-LLM, symmetric memory of PyTorch and of NCCL, RCCL.
inline constexpr std::array<std::string_view, 12> kCollectiveNames = {
    "nccl",      "rccl",       "nvshmem",       "cross_device_reduce", "allreduce",  "all_reduce",
    "allgather", "all_gather", "reducescatter", "reduce_scatter",      "all_to_all", "alltoall"};

inline constexpr std::array kClasses = {
    Rule{"nccl", "collective"},
    Rule{"sdpa", "attention"},
    Rule{"flash_", "attention"},
    Rule{"fmha", "attention"},
    Rule{"attention", "attention"},
    Rule{"attn_fwd", "attention"},  // AOTriton
    Rule{"attn_bwd", "attention"},
    Rule{"bwd_kernel_dk_dv", "attention"},
    Rule{"bwd_kernel_dq", "attention"},
    Rule{"sage_fwd", "attention"},
    Rule{"compute_dot_do_o", "attention"},
    Rule{"backward_queries", "attention"},
    Rule{"backward_keys", "attention"},
    Rule{"scudnn", "convolution"},
    Rule{"884cudnn", "convolution"},
    Rule{"1688cudnn", "convolution"},
    Rule{"16816cudnn", "convolution"},
    Rule{"_fprop", "convolution"},
    Rule{"dgrad_", "convolution"},
    Rule{"wgrad_", "convolution"},
    Rule{"winograd", "convolution"},
    Rule{"convolve", "convolution"},
    Rule{"conv2d", "convolution"},
    Rule{"conv_depthwise", "convolution"},
    Rule{"naive_conv", "convolution"},
    Rule{"igemm_", "convolution"},  // MIOpen's
    Rule{"fft2d", "convolution"},
    Rule{"embedding_codegen", "embedding"},  // FBGEMM's tables
    Rule{"nvjet", "gemm"},
    Rule{"cijk_", "gemm"},
    Rule{"matmul_ogs", "gemm"},  // of triton_kernels
    Rule{"batch_matmul", "gemm"},
    Rule{"fc-dtype", "gemm"},  // MTIA's
    Rule{"bmm_", "gemm"},
    Rule{"gemm", "gemm"},
    Rule{"gemv", "gemm"},
    Rule{"splitk", "gemm"},
    Rule{"xmma", "gemm"},
    Rule{"triton_mm", "gemm"},
    Rule{"triton_tem", "gemm"},
    Rule{"cutlass_", "gemm"},
    Rule{"cublaslt::", "gemm"},
    Rule{"row_products", "gemm"},
    Rule{"adam", "optimizer"},
    Rule{"sgd", "optimizer"},
    Rule{"::lion<", "optimizer"},
    Rule{"multi_tensor", "optimizer"},
    Rule{"square_sums", "optimizer"},
    Rule{"root_of_total", "optimizer"},
    Rule{"total_of", "optimizer"},
    Rule{"loss_scale", "optimizer"},
    Rule{"cross_entropy", "loss"},
    Rule{"nll_loss", "loss"},
    Rule{"softmax", "softmax"},
    Rule{"layernorm", "norm"},
    Rule{"layer_norm", "norm"},
    Rule{"rmsnorm", "norm"},
    Rule{"rms_norm", "norm"},
    Rule{"batch_norm", "norm"},
    Rule{"batchnorm", "norm"},
    Rule{"group_norm", "norm"},
    Rule{"bn_fw_", "norm"},
    Rule{"bn_bw_", "norm"},
    Rule{"rowwisemoments", "norm"},
    Rule{"computeinternalgradients", "norm"},
    Rule{"computebackwardfusedparams", "norm"},
    Rule{"norm_forward", "norm"},
    Rule{"norm_backward", "norm"},
    Rule{"gammabeta", "norm"},
    Rule{"embedding", "embedding"},
    Rule{"compute_grad_weight", "embedding"},  // PyTorch's backward pass of it
    Rule{"sum_and_scatter", "embedding"},
    Rule{"partial_segment", "embedding"},
    Rule{"partials_per_segment", "embedding"},
    Rule{"add_positions", "embedding"},
    Rule{"indexselect", "embedding"},
    Rule{"index_select", "embedding"},
    Rule{"gather_kernel", "embedding"},
    Rule{"radixsort", "embedding"},
    Rule{"number_rows", "embedding"},
    Rule{"memcpy", "copy"},
    Rule{"memset", "copy"},
    Rule{"fill_memory", "copy"},
    Rule{"::store(", "copy"},
    Rule{"catarray", "copy"},
    Rule{"move_heads", "copy"},
    Rule{"transpose", "copy"},
    Rule{"nchwtonhwc", "copy"},
    Rule{"nhwctonchw", "copy"},
    Rule{"store_kvcache", "copy"},
    Rule{"reshape_and_cache", "copy"},
    Rule{"direct_copy", "copy"},
    Rule{"float16_copy", "cast"},
    Rule{"convert", "cast"},
    Rule{"cast", "cast"},
    Rule{"_pool", "pooling"},
    Rule{"elementwise", "elementwise"},
    Rule{"subtensorop", "elementwise"},  // MIOpen's
    Rule{"gelu", "elementwise"},
    Rule{"swiglu", "elementwise"},
    Rule{"silu", "elementwise"},
    Rule{"rope", "elementwise"},
    Rule{"bias_add", "elementwise"},
    Rule{"sum_rows", "elementwise"},
    Rule{"sum_partials", "elementwise"},
    Rule{"add_rows", "elementwise"},
    Rule{"reduce_kernel", "elementwise"},
    Rule{"triton_poi", "elementwise"},
    Rule{"triton_red", "elementwise"},
    Rule{"triton_per", "elementwise"}};

}  // namespace rooflm::report
