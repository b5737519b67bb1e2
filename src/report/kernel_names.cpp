// What the name of a kernel says.
#include "report/kernel_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

namespace rooflm::report {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

/// The name up to its parameters and template arguments, without what stands before it: "norm_forward" of
/// "void rooflm::backends::cuda::norm_forward<float>(float*)".
std::string shorten(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string text(name);
  for (std::size_t at = text.find(kAnonymous); at != std::string::npos; at = text.find(kAnonymous)) {
    text.erase(at, kAnonymous.size());
  }
  text = text.substr(0, text.find_first_of("<("));
  if (const std::size_t space = text.rfind(' '); space != std::string::npos) text.erase(0, space + 1);
  if (const std::size_t colon = text.rfind("::"); colon != std::string::npos) text.erase(0, colon + 2);
  return text.empty() ? std::string(name) : text;
}

struct Rule {
  std::string_view part;  ///< of the name in lower case
  std::string_view what;
};

/// The first that is found counts.
constexpr std::array kLibraries = {Rule{"rooflm::", "rooflm"},
                                   Rule{"nvjet", "cuBLASLt"},
                                   Rule{"cublaslt", "cuBLASLt"},
                                   Rule{"cudnn", "cuDNN"},
                                   Rule{"nccl", "NCCL"},
                                   Rule{"triton_", "Triton"},
                                   Rule{"_cublas", "cuBLAS"},
                                   Rule{"xmma_gemm", "cuBLAS"},
                                   Rule{"cublas", "cuBLAS"},
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
constexpr std::array<std::string_view, 12> kCollectiveNames = {
    "nccl",      "rccl",       "nvshmem",       "cross_device_reduce", "allreduce",  "all_reduce",
    "allgather", "all_gather", "reducescatter", "reduce_scatter",      "all_to_all", "alltoall"};

constexpr std::array kClasses = {Rule{"nccl", "collective"},
                                 Rule{"sdpa", "attention"},
                                 Rule{"flash_", "attention"},
                                 Rule{"fmha", "attention"},
                                 Rule{"attention", "attention"},
                                 Rule{"backward_queries", "attention"},
                                 Rule{"backward_keys", "attention"},
                                 Rule{"nvjet", "gemm"},
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
                                 Rule{"norm_forward", "norm"},
                                 Rule{"norm_backward", "norm"},
                                 Rule{"gammabeta", "norm"},
                                 Rule{"embedding", "embedding"},
                                 Rule{"add_positions", "embedding"},
                                 Rule{"indexselect", "embedding"},
                                 Rule{"index_select", "embedding"},
                                 Rule{"radixsort", "embedding"},
                                 Rule{"number_rows", "embedding"},
                                 Rule{"memcpy", "copy"},
                                 Rule{"memset", "copy"},
                                 Rule{"fill_memory", "copy"},
                                 Rule{"::store(", "copy"},
                                 Rule{"catarray", "copy"},
                                 Rule{"move_heads", "copy"},
                                 Rule{"transpose", "copy"},
                                 Rule{"direct_copy", "copy"},
                                 Rule{"convert", "cast"},
                                 Rule{"cast", "cast"},
                                 Rule{"elementwise", "elementwise"},
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

template <class Rules>
std::string first_rule(const Rules& rules, std::string_view text, std::string_view otherwise) {
  for (const Rule& rule : rules) {
    if (has(text, rule.part)) return std::string(rule.what);
  }
  return std::string(otherwise);
}

/// "128x256" and "128x256x64" to their numbers; empty for other texts.
std::vector<std::string> extents_of(std::string_view text) {
  std::vector<std::string> numbers(1);
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      numbers.back() += c;
    } else if (c == 'x' && !numbers.back().empty()) {
      numbers.emplace_back();
    } else {
      return {};
    }
  }
  return numbers.size() < 2 || numbers.back().empty() ? std::vector<std::string>{} : numbers;
}

/// The parts of a name between underscores and other marks.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

/// nvjet names types by letters: operands, sums, result.
std::string nvjet_precision(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size() && i < 3; ++i) {  // an architecture may stand before the types
    if (words[i].starts_with("sm")) continue;
    switch (words[i].empty() ? ' ' : words[i][0]) {
      case 't':
        return "bf16";
      case 'h':
        return "fp16";
      case 'q':
      case 'o':
      case 'r':
        return "fp8";
      case 's':
        return "tf32";
      case 'd':
        return "fp64";
      default:
        return "";
    }
  }
  return "";
}

std::string precision_of(std::string_view text, const std::vector<std::string>& words) {
  if (has(text, "nvjet")) return nvjet_precision(words);
  constexpr std::array kRules = {Rule{"bf16x6", "bf16x6"}, Rule{"tf32", "tf32"}, Rule{"bf16", "bf16"},
                                 Rule{"bfloat16", "bf16"}, Rule{"e4m3", "fp8"},  Rule{"e5m2", "fp8"},
                                 Rule{"fp8", "fp8"},       Rule{"f16", "fp16"},  Rule{"half", "fp16"},
                                 Rule{"h16816", "fp16"},   Rule{"fp16", "fp16"}, Rule{"hgemm", "fp16"},
                                 Rule{"dgemm", "fp64"},    Rule{"f64", "fp64"},  Rule{"double", "fp64"},
                                 Rule{"int8", "int8"},     Rule{"i8", "int8"},   Rule{"sgemm", "fp32"},
                                 Rule{"simt", "fp32"},     Rule{"f32", "fp32"},  Rule{"float", "fp32"}};
  return first_rule(kRules, text, "");
}

std::string instruction_of(std::string_view text) {
  constexpr std::array kRules = {
      Rule{"nvjet", "wgmma"},      Rule{"gemm_bf16x6", "wgmma"},  Rule{"warpgroup", "wgmma"},
      Rule{"wgmma", "wgmma"},      Rule{"gmma", "wgmma"},         Rule{"sm90_xmma", "wgmma"},
      Rule{"161616", "wmma"},      Rule{"16816", "mma m16n8k16"}, Rule{"16832", "mma m16n8k32"},
      Rule{"1688", "mma m16n8k8"}, Rule{"884", "mma m8n8k4"},     Rule{"wmma", "wmma"},
      Rule{"tensorop", "mma"},     Rule{"xmma", "mma"},           Rule{"sgemm", "ffma"},
      Rule{"simt", "ffma"}};
  // Newer architectures have other instructions under the same names of kernels.
  if (has(text, "sm100") || has(text, "sm103") || has(text, "sm120")) return "tcgen05";
  return first_rule(kRules, text, "");
}

/// Tile, stages and cluster: extents in the order in which names have them.
void find_tile(KernelName& kernel, const std::vector<std::string>& words) {
  constexpr std::string_view kTileSize = "tilesize";
  std::vector<std::vector<std::string>> all;
  for (const std::string& word : words) {
    const bool is_named = word.starts_with(kTileSize);
    auto numbers = extents_of(is_named ? std::string_view(word).substr(kTileSize.size()) : word);
    if (numbers.empty()) continue;
    if (is_named) all.clear();
    all.push_back(std::move(numbers));
    if (is_named) break;
  }
  if (all.empty()) return;
  kernel.tile = all[0][0] + "x" + all[0][1];
  if (all[0].size() > 2) {
    kernel.tile += "x" + all[0][2];
    return;
  }
  if (all.size() < 2 || all[1].size() != 2) return;
  kernel.tile += "x" + all[1][0];
  kernel.stages = all[1][1];
  if (all.size() > 2 && all[2].size() == 2 && kernel.library == "cuBLASLt") {
    kernel.cluster = all[2][0] + "x" + all[2][1];
  }
}

std::string class_of_op(const record::Op& op) {
  if (op.kind == "cast") return "cast";
  return op.op_class == "matmul" ? "gemm" : op.op_class;
}

}  // namespace

KernelName parse_kernel_name(std::string_view name) {
  const std::string text = lower(name);
  KernelName kernel{.short_name = shorten(name),
                    .library = first_rule(kLibraries, text, ""),
                    .kernel_class = first_rule(kClasses, text, kUnknownClass)};
  const std::string short_text = lower(kernel.short_name);
  if (std::ranges::any_of(kCollectiveNames, [&](std::string_view part) { return has(short_text, part); })) {
    kernel.kernel_class = kCollectiveClass;
  }
  if (kernel.kernel_class != "gemm") return kernel;
  const std::vector<std::string> words = words_of(text);
  find_tile(kernel, words);
  kernel.instruction = instruction_of(text);
  kernel.precision = precision_of(text, words);
  return kernel;
}

std::string class_of_kernel(const KernelName& name, const record::Op* op) {
  if (op == nullptr) return name.kernel_class;
  const std::string& named = name.kernel_class;
  const bool only_helps = named == "copy" || named == "cast" || named == "collective";
  const bool is_matmul = op->op_class == "matmul";
  if (only_helps || (is_matmul && named != kUnknownClass)) return named;
  const std::string by_op = class_of_op(*op);
  return by_op.empty() ? named : by_op;
}

}  // namespace rooflm::report
