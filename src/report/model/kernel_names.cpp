// What the name of a kernel says.
#include "report/model/kernel_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "report/model/activity_names.h"

namespace rooflm::report {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Without return type, parameters and anonymous namespaces; `arguments`: those of its template.
struct NameParts {
  std::string base{}, arguments{};
};

/// "norm_forward" and "float" of "void rooflm::backends::cuda::norm_forward<float>(float*)".
NameParts name_parts(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string text(name);
  for (std::size_t at = text.find(kAnonymous); at != std::string::npos; at = text.find(kAnonymous)) {
    text.erase(at, kAnonymous.size());
  }
  NameParts parts{.base = text.substr(0, text.find_first_of("<("))};
  if (parts.base.size() < text.size() && text[parts.base.size()] == '<') {
    const std::size_t begin = parts.base.size() + 1;
    std::size_t end = begin;
    for (int depth = 1; end < text.size(); ++end) {
      depth += text[end] == '<' ? 1 : text[end] == '>' ? -1 : 0;
      if (depth == 0) break;
    }
    parts.arguments = text.substr(begin, end - begin);
  }
  std::string& base = parts.base;
  if (const std::size_t space = base.rfind(' '); space != std::string::npos) base.erase(0, space + 1);
  if (const std::size_t colon = base.rfind("::"); colon != std::string::npos) base.erase(0, colon + 2);
  if (base.empty()) base = name;
  return parts;
}

/// The names in a text, with the numbers.
std::vector<std::string_view> name_tokens(std::string_view text) {
  std::vector<std::string_view> tokens;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_of_name(text[end])) ++end;
    if (end > at) tokens.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return tokens;
}

/// What a template that runs any function was made for: "MulFunctor", "neg_kernel_cuda",
/// "cutlass_80_simt_sgemm_...".
bool is_function(std::string_view token) {
  constexpr std::array<std::string_view, 9> kFrames = {
      "BinaryFunctor",   "AUnaryFunctor",          "BUnaryFunctor",    "UnaryFunctor",     "ReduceOp",
      "gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "opmath_gpu_kernel"};
  if (std::ranges::find(kFrames, token) != kFrames.end()) return false;
  return has(token, "unctor") || has(token, "_kernel") || token.ends_with("Op") || token.ends_with("Ops") ||
         token.ends_with("Epilogue") || token.ends_with("Assign") || token.starts_with("cutlass_") ||
         token.starts_with("FlashAttn") || token.starts_with("GemmUniversal");
}

std::string_view dtype_of(std::string_view token) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kTypes = {
      {{"float", "fp32"},
       {"double", "fp64"},
       {"BFloat16", "bf16"},
       {"__nv_bfloat16", "bf16"},
       {"bfloat16_t", "bf16"},
       {"Half", "fp16"},
       {"__half", "fp16"},
       {"half_t", "fp16"},
       {"half", "fp16"},
       {"long", "int64"},
       {"bool", "bool"},
       {"complex", "complex"}}};
  const auto* const found =
      std::ranges::find(kTypes, token, &std::pair<std::string_view, std::string_view>::first);
  return found == kTypes.end() ? std::string_view() : found->second;
}

/// "vectorized_elementwise_kernel<MulFunctor, bf16>": the name, and of a template that runs any function
/// which one, of which type.
std::string shorten(std::string_view name) {
  const NameParts parts = name_parts(name);
  std::string_view function;
  std::string_view dtype;
  for (const std::string_view token : name_tokens(parts.arguments)) {
    if (function.empty() && is_function(token)) function = token;
    if (dtype.empty()) dtype = dtype_of(token);
  }
  if (function.empty()) return parts.base;
  if (function.starts_with("cutlass_")) return std::string(function);
  return parts.base + "<" + std::string(function) + (dtype.empty() ? "" : ", " + std::string(dtype)) + ">";
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
                                 Rule{"compute_dot_do_o", "attention"},
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
                                 Rule{"float16_copy", "cast"},
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

bool has_int8(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    return word == "s8" || word == "u8" || word.starts_with("i8") || word.starts_with("int8");
  });
}

/// By the types in a name; where it has none, by the letter before the shape of the instruction: CUTLASS
/// calls TF32 "s1688gemm", cuBLAS FP16 "h884gemm".
std::string precision_of(std::string_view text, const std::vector<std::string>& words) {
  if (has(text, "nvjet")) return nvjet_precision(words);
  if (has_int8(words)) return "int8";
  constexpr std::array kRules = {
      Rule{"bf16x6", "bf16x6"}, Rule{"tf32", "tf32"},  Rule{"tfloat32", "tf32"}, Rule{"bf16", "bf16"},
      Rule{"bfloat16", "bf16"}, Rule{"e4m3", "fp8"},   Rule{"e5m2", "fp8"},      Rule{"fp8", "fp8"},
      Rule{"f16", "fp16"},      Rule{"half", "fp16"},  Rule{"fp16", "fp16"},     Rule{"h16816", "fp16"},
      Rule{"h1688", "fp16"},    Rule{"h884", "fp16"},  Rule{"hgemm", "fp16"},    Rule{"i16816", "int8"},
      Rule{"i16832", "int8"},   Rule{"i8816", "int8"}, Rule{"i8832", "int4"},    Rule{"i16864", "int4"},
      Rule{"s1688", "tf32"},    Rule{"s1684", "tf32"}, Rule{"s884", "fp16"},     Rule{"d884", "fp64"},
      Rule{"dgemm", "fp64"},    Rule{"f64", "fp64"},   Rule{"double", "fp64"},   Rule{"sgemm", "fp32"},
      Rule{"simt", "fp32"},     Rule{"f32", "fp32"},   Rule{"float", "fp32"}};
  return first_rule(kRules, text, "");
}

std::string instruction_of(std::string_view text) {
  constexpr std::array kRules = {Rule{"ffma", "ffma"},
                                 Rule{"simt", "ffma"},
                                 Rule{"nvjet", "wgmma"},
                                 Rule{"gemm_bf16x6", "wgmma"},
                                 Rule{"warpgroup", "wgmma"},
                                 Rule{"wgmma", "wgmma"},
                                 Rule{"gmma", "wgmma"},
                                 Rule{"sm90_xmma", "wgmma"},
                                 Rule{"161616", "wmma"},
                                 Rule{"16816", "mma m16n8k16"},
                                 Rule{"16832", "mma m16n8k32"},
                                 Rule{"16864", "mma m16n8k64"},
                                 Rule{"1688", "mma m16n8k8"},
                                 Rule{"1684", "mma m16n8k4"},
                                 Rule{"8816", "mma m8n8k16"},
                                 Rule{"884", "mma m8n8k4"},
                                 Rule{"wmma", "wmma"},
                                 Rule{"tensor16x8x16", "mma m16n8k16"},
                                 Rule{"tensor16x8x32", "mma m16n8k32"},
                                 Rule{"tensor16x8x8", "mma m16n8k8"},
                                 Rule{"tensorop", "mma"},
                                 Rule{"xmma", "mma"},
                                 Rule{"sgemm", "ffma"}};
  // Newer architectures have other instructions under the same names of kernels.
  if (has(text, "sm100") || has(text, "sm103") || has(text, "sm120")) return "tcgen05";
  return first_rule(kRules, text, "");
}

/// Tile, stages and cluster: extents in the order in which names have them.
void find_tile(KernelName& kernel, const std::vector<std::string>& words) {
  constexpr std::string_view kTileSize = "tilesize";
  constexpr std::string_view kStage = "stage";
  std::vector<std::vector<std::string>> all;
  for (const std::string& word : words) {  // "stage3"
    const bool has_stages = word.starts_with(kStage) && word.size() > kStage.size();
    const std::string number = has_stages ? word.substr(kStage.size()) : "";
    if (std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c) != 0; }))
      kernel.stages += number;
  }
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
  std::string text = lower(name);
  // How a kernel handles types and shapes is not what it does.
  for (const std::string_view part : {"nocast", "withcast", "broadcast"}) {
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part))
      text.erase(at, part.size());
  }
  KernelName kernel{.short_name = shorten(name),
                    .base_name = name_parts(name).base,
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

namespace {

/// Adds to names of one group what their whole names differ in: at each place where some that have the same
/// so far differ, the token there.
void tell_group_apart(std::span<const std::string_view> whole, const std::vector<std::size_t>& group,
                      std::vector<std::string>& shorts) {
  std::vector<std::vector<std::string_view>> tokens;
  std::size_t longest = 0;
  for (const std::size_t i : group) {
    tokens.push_back(name_tokens(whole[i]));
    longest = std::max(longest, tokens.back().size());
  }
  std::vector<std::string> added(group.size());
  for (std::size_t place = 0; place < longest; ++place) {
    std::map<std::string, std::set<std::string_view>> seen;
    const auto token = [&](std::size_t i) {
      return place < tokens[i].size() ? tokens[i][place] : std::string_view("-");
    };
    for (std::size_t i = 0; i < group.size(); ++i) seen[added[i]].insert(token(i));
    if (std::ranges::all_of(seen, [](const auto& one) { return one.second.size() == 1; })) continue;
    for (std::size_t i = 0; i < group.size(); ++i) {
      added[i] += (added[i].empty() ? "" : ",") + std::string(token(i));
    }
  }
  std::map<std::string, int> times;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const int time = ++times[added[i]];  // they differ in marks alone
    std::string& name = shorts[group[i]];
    if (!added[i].empty()) name += " [" + added[i] + "]";
    if (time > 1) name += " #" + std::to_string(time);
  }
}

}  // namespace

std::vector<std::string> distinct_short_names(std::span<const std::string_view> names) {
  std::vector<std::string> shorts;
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < names.size(); ++i) {
    shorts.push_back(shorten(names[i]));
    groups[shorts.back()].push_back(i);
  }
  for (const auto& [name, group] : groups) {
    if (group.size() > 1) tell_group_apart(names, group, shorts);
  }
  return shorts;
}

std::map<std::string, std::string, std::less<>> short_kernel_names(
    std::span<const record::ActivityName> names) {
  std::vector<std::string_view> whole;
  for (const record::ActivityName& name : names) {
    if (is_kernel_kind(name.kind)) whole.push_back(name.text);
  }
  const std::vector<std::string> shorts = distinct_short_names(whole);
  std::map<std::string, std::string, std::less<>> all;
  for (std::size_t i = 0; i < whole.size(); ++i) all[std::string(whole[i])] = shorts[i];
  return all;
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
