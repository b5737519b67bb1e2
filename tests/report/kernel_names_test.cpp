// Names of kernels as libraries give them, and what is read from them.
#include "report/model/kernel_names.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "report/model/launch_shape.h"

namespace rooflm::report {
namespace {

struct NameCase {
  const char* name;
  const char *short_name, *library, *kernel_class, *tile, *stages, *instruction, *precision;
};

class KernelNames : public testing::TestWithParam<NameCase> {};

TEST_P(KernelNames, SayWhatTheyAre) {
  const NameCase& wanted = GetParam();
  const KernelName found = parse_kernel_name(wanted.name);
  EXPECT_EQ(found.short_name, wanted.short_name);
  EXPECT_EQ(found.library, wanted.library);
  EXPECT_EQ(found.kernel_class, wanted.kernel_class);
  EXPECT_EQ(found.tile, wanted.tile);
  EXPECT_EQ(found.stages, wanted.stages);
  EXPECT_EQ(found.instruction, wanted.instruction);
  EXPECT_EQ(found.precision, wanted.precision);
}

INSTANTIATE_TEST_SUITE_P(
    Libraries, KernelNames,
    testing::Values(
        NameCase{"nvjet_tst_128x256_64x6_2x1_v_bz_coopA_NTN", "nvjet_tst_128x256_64x6_2x1_v_bz_coopA_NTN",
                 "cuBLASLt", "gemm", "128x256x64", "6", "wgmma", "bf16"},
        NameCase{"nvjet_sm90_hsh_192x192_64x4_1x2_h_bz_NNT", "nvjet_sm90_hsh_192x192_64x4_1x2_h_bz_NNT",
                 "cuBLASLt", "gemm", "192x192x64", "4", "wgmma", "fp16"},
        NameCase{"nvjet_qqtst_128x128_128x6_2x1_v_bz_TNN", "nvjet_qqtst_128x128_128x6_2x1_v_bz_TNN",
                 "cuBLASLt", "gemm", "128x128x128", "6", "wgmma", "fp8"},
        NameCase{
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_"
            "k_off_kernel__5x_cublas",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_"
            "k_off_kernel__5x_cublas",
            "cuBLAS", "gemm", "128x128x64", "", "wgmma", "bf16"},
        NameCase{"sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_stage4_warpsize2x2x1_tensor16x8x8_"
                 "kernel",
                 "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_stage4_warpsize2x2x1_tensor16x8x8_"
                 "kernel",
                 "cuBLAS", "gemm", "64x64x32", "4", "mma m16n8k8", "tf32"},
        NameCase{
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8>(cutlass_"
            "80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8::Params)",
            "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8", "CUTLASS", "gemm",
            "256x128x32", "3", "mma m16n8k16", "bf16"},
        NameCase{"ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn", "cuBLAS", "gemm", "128x64", "", "ffma",
                 "fp32"},
        NameCase{"ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
                 "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "cuBLAS", "gemm", "128x64x64",
                 "4", "mma m16n8k16", "bf16"},
        NameCase{"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)",
                 "splitKreduce_kernel", "cuBLASLt", "gemm", "", "", "", "bf16"},
        NameCase{
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
            "cuDNN", "attention", "", "", "", ""},
        NameCase{"triton_poi_fused_add_native_layer_norm_3", "triton_poi_fused_add_native_layer_norm_3",
                 "Triton", "norm", "", "", "", ""},
        NameCase{"triton_poi_fused_mul_0", "triton_poi_fused_mul_0", "Triton", "elementwise", "", "", "", ""},
        NameCase{"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                 "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "NCCL", "collective", "", "", "", ""},
        NameCase{"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<int>(int)",
                 "multi_tensor_apply_kernel", "PyTorch", "optimizer", "", "", "", ""},
        NameCase{"void rooflm::backends::cuda::(anonymous namespace)::norm_forward<__nv_bfloat16>(int)",
                 "norm_forward", "rooflm", "norm", "", "", "", ""},
        NameCase{"rooflm::backends::cuda::(anonymous namespace)::store(unsigned int*, unsigned int)", "store",
                 "rooflm", "copy", "", "", "", ""},
        NameCase{"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_MI16x16x1_SN_LDSB1_AFC1",
                 "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_MI16x16x1_SN_LDSB1_AFC1",
                 "Tensile", "gemm", "128x192x64", "", "mfma", "bf16"},
        NameCase{"Cijk_Ailk_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN",  // fp32
                 "Cijk_Ailk_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN", "Tensile", "gemm",
                 "64x16x16", "", "mfma", "fp32"},
        NameCase{"attn_fwd", "attn_fwd", "", "attention", "", "", "", ""},
        NameCase{"cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
                 "cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "cuDNN",
                 "convolution", "", "", "", ""},
        NameCase{"sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4",
                 "sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4",
                 "", "convolution", "", "", "", ""},
        NameCase{"void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float)",
                 "bn_bw_1C11_kernel_new", "cuDNN", "norm", "", "", "", ""},
        NameCase{"void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
                 "max_pool_forward_nchw", "PyTorch", "pooling", "", "", "", ""},
        NameCase{"_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
                 "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "", "gemm", "16x128x256", "", "", "bf16"},
        NameCase{"fbgemm::split_embedding_codegen_forward_cpu-dtype_Half",
                 "split_embedding_codegen_forward_cpu-dtype_Half", "", "embedding", "", "", "", ""},
        NameCase{"memcpy32_post", "memcpy32_post", "driver", "copy", "", "", "", ""},
        NameCase{"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_"
                 "alignc4_execute_kernel__5x_cublas",
                 "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_"
                 "alignc4_execute_kernel__5x_cublas",
                 "cuBLAS", "gemm", "128x128x8", "3", "ffma", "fp32"},
        NameCase{"void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(cutlass_80_simt_sgemm_"
                 "256x128_8x4_nt_align1::Params)",
                 "cutlass_80_simt_sgemm_256x128_8x4_nt_align1", "CUTLASS", "gemm", "256x128x8", "4", "ffma",
                 "fp32"},
        NameCase{"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4>(cutlass_80_"
                 "tensorop_s1688gemm_128x256_16x3_nn_align4::Params)",
                 "cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4", "CUTLASS", "gemm", "128x256x16", "3",
                 "mma m16n8k8", "tf32"},
        NameCase{"cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_tn_align4",
                 "cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_tn_align4", "CUTLASS", "gemm", "256x128x16",
                 "3", "mma m16n8k8", "tf32"},
        NameCase{"void cutlass::Kernel<cutlass_75_tensorop_s1688gemm_f16_256x128_32x2_tn_align8>(int)",
                 "cutlass_75_tensorop_s1688gemm_f16_256x128_32x2_tn_align8", "CUTLASS", "gemm", "256x128x32",
                 "2", "mma m16n8k8", "fp16"},
        NameCase{"cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16",
                 "cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16", "CUTLASS", "gemm", "256x128x64",
                 "3", "mma m16n8k32", "int8"},
        NameCase{"cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1",
                 "cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1", "CUTLASS", "gemm", "64x64x16", "4",
                 "mma m8n8k4", "fp64"},
        NameCase{"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
                 "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "cuBLAS", "gemm", "128x128", "",
                 "mma m8n8k4", "fp16"},
        NameCase{"turing_h1688gemm_128x128_ldg8_stages_32x1_nn",
                 "turing_h1688gemm_128x128_ldg8_stages_32x1_nn", "cuBLAS", "gemm", "128x128x32", "1",
                 "mma m16n8k8", "fp16"},
        NameCase{"turing_int8_i8816gemm_int8_128x128_ldg16_nt", "turing_int8_i8816gemm_int8_128x128_ldg16_nt",
                 "cuBLAS", "gemm", "128x128", "", "mma m8n8k16", "int8"},
        NameCase{
            "sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x64x64_stage5_warpsize2x2x1_tensor16x8x32_kernel",
            "sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x64x64_stage5_warpsize2x2x1_tensor16x8x32_kernel",
            "cuBLAS", "gemm", "128x64x64", "5", "mma m16n8k32", "int8"},
        NameCase{"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
                 "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
                 "vectorized_elementwise_kernel<CUDAFunctor_add, fp32>", "PyTorch", "elementwise", "", "", "",
                 ""},
        NameCase{"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
                 "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::"
                 "MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
                 "elementwise_kernel<MulFunctor, bf16>", "PyTorch", "elementwise", "", "", "", ""},
        NameCase{
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
            "neg_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#9}::"
            "operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
            "elementwise_kernel<neg_kernel_cuda, bf16>", "PyTorch", "elementwise", "", "", "", ""},
        NameCase{
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, "
            "float, float, float>, unsigned int, float, 4, 4> >(int)",
            "reduce_kernel<MeanOps, fp32>", "PyTorch", "elementwise", "", "", "", ""},
        NameCase{
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
            "TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::"
            "{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, at::"
            "native::memory::LoadWithCast<1> >(int)",
            "unrolled_elementwise_kernel<direct_copy_kernel_cuda, fp32>", "PyTorch", "copy", "", "", "", ""},
        NameCase{
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
            "namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::"
            "FusedAdamMathFunctor<c10::BFloat16, 4, (at::native::ADAM_MODE)1, false>, float const*>(int)",
            "multi_tensor_apply_kernel<FusedAdamMathFunctor, bf16>", "PyTorch", "optimizer", "", "", "", ""},
        NameCase{"what_is_this", "what_is_this", "", "unknown", "", "", "", ""},
        NameCase{"", "", "", "unknown", "", "", "", ""}));

TEST(KernelNames, ThatDifferAreShownAsDifferentOnes) {
  const std::string square =
      "void at::native::vectorized_elementwise_kernel<4, at::native::pow_tensor_scalar_kernel_impl<float, "
      "float>"
      "(at::TensorIteratorBase&, float)::{lambda(float)#1}, std::array<char*, 2ul> >(int)";
  std::string cube = square;
  cube.replace(cube.find("#1"), 2, "#2");
  const std::string split = "void cublasLt::splitKreduce_kernel<32, 16, int, float, ";
  const std::string bf16 = split + "__nv_bfloat16>(int)";
  const std::string fp32 = split + "float>(int)";
  const std::string_view names[] = {
      square, cube, bf16, fp32, "gemm", "void f<int&>(int)", "void f<int*>(int)"};
  EXPECT_EQ(distinct_short_names(names),
            (std::vector<std::string>{
                "vectorized_elementwise_kernel<pow_tensor_scalar_kernel_impl, fp32> [1]",
                "vectorized_elementwise_kernel<pow_tensor_scalar_kernel_impl, fp32> [2]",
                "splitKreduce_kernel [__nv_bfloat16]", "splitKreduce_kernel [float]", "gemm", "f", "f #2"}));
}

TEST(KernelClass, TheOpSaysWhatIsDoneAndTheNameWhatOnlyHelps) {
  const auto of = [](const char* name, const char* op_class, const char* kind) {
    const record::Op op{.kind = kind, .op_class = op_class};
    return class_of_kernel(parse_kernel_name(name), &op);
  };
  EXPECT_EQ(of("sum_partials", "norm", "layernorm_backward"), "norm");
  EXPECT_EQ(of("what_is_this", "matmul", "matmul"), "gemm");
  EXPECT_EQ(of("void rooflm::fill_memory()", "matmul", "matmul"), "copy");
  EXPECT_EQ(of("void rooflm::bias_add()", "matmul", "matmul_bias"), "elementwise");
  EXPECT_EQ(of("what_is_this", "copy", "cast"), "cast");
  EXPECT_EQ(of("what_is_this", "", ""), "unknown");
  EXPECT_EQ(class_of_kernel(parse_kernel_name("what_is_this"), nullptr), "unknown");
}

TEST(LaunchShapes, AreReadFromARecordThatMayBeSomebodyElses) {
  const LaunchShape shape = parse_launch(
      R"({"grid":[66,2,1],"block":[100,1,1],"registers":32,"occupancy":0.5,"waves":1.5,"occupancy_limit":"shared"})");
  EXPECT_EQ(shape.blocks(), 132);
  EXPECT_EQ(shape.warps(), 4);
  EXPECT_EQ(shape.registers, 32);
  EXPECT_DOUBLE_EQ(*shape.occupancy, 0.5);
  EXPECT_EQ(shape.occupancy_limit, "shared");
  EXPECT_DOUBLE_EQ(*shape.tail(), 0.25);
  for (const char* text : {"", "nonsense", "[]", R"({"grid":"x","waves":"y"})", R"({"grid":[1,2]})",
                           R"({"grid":[9223372036854775807,2,2]})", R"({"grid":[-1,2,2]})"}) {
    EXPECT_EQ(parse_launch(text).blocks(), 0) << text;
  }
  EXPECT_FALSE(parse_launch(R"({"waves":0.5})").tail().has_value());
}

}  // namespace
}  // namespace rooflm::report
