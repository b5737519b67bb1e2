// What one operator of PyTorch has to compute and to move, by its shapes.
#include "foreign/operator_work.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace rooflm::foreign {
namespace {

/// Elements of one tensor: beyond them a note is a lie.
constexpr double kMostElements = 0x1p50;

/// Give another view of memory, or memory that nobody has written.
constexpr auto kViews = std::to_array<std::string_view>({"_local_scalar_dense",
                                                         "_reshape_alias",
                                                         "_unsafe_view",
                                                         "alias",
                                                         "as_strided",
                                                         "detach",
                                                         "diagonal",
                                                         "empty",
                                                         "empty_like",
                                                         "empty_strided",
                                                         "expand",
                                                         "lift_fresh",
                                                         "narrow",
                                                         "new_empty",
                                                         "new_empty_strided",
                                                         "permute",
                                                         "record_stream",
                                                         "select",
                                                         "set",
                                                         "slice",
                                                         "split",
                                                         "split_with_sizes",
                                                         "squeeze",
                                                         "t",
                                                         "transpose",
                                                         "unbind",
                                                         "unfold",
                                                         "unsqueeze",
                                                         "view",
                                                         "wait_tensor",
                                                         "view_as_complex",
                                                         "view_as_real"});
/// Write without reading what was there.
constexpr auto kWriters = std::to_array<std::string_view>(
    {"fill",       "zero",          "normal",     "uniform",    "zeros",     "ones",
     "full",       "arange",        "zeros_like", "ones_like",  "full_like", "scalar_tensor",
     "randn",      "_foreach_zero", "new_zeros",  "new_ones",   "new_full",  "rand_like",
     "randn_like", "randint",       "bernoulli",  "exponential"});
/// Read as much of their first input as they write.
constexpr auto kGathers = std::to_array<std::string_view>(
    {"embedding", "gather", "index", "index_select", "nll_loss_forward", "take"});
/// Write as much of what they change in its place as their other inputs hold.
constexpr auto kScatters =
    std::to_array<std::string_view>({"_index_put_impl", "index_add", "index_copy", "index_fill", "index_put",
                                     "masked_fill", "scatter", "scatter_add"});
constexpr auto kProducts = std::to_array<std::string_view>(
    {"_addmm_activation", "_grouped_mm", "_int_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2",
     "_scaled_mm", "_scaled_mm_v2", "addbmm", "addmm", "addmv", "baddbmm", "bmm", "mm", "mv"});
/// Whose operators are known to read and write no more than they are given.
constexpr auto kPriced = std::to_array<std::string_view>(
    {"aten", "c10d", "_c10d_functional", "flash_attn", "fsdp", "higher_order", "triton"});
/// Only move bytes.
constexpr auto kMoves = std::to_array<std::string_view>({"copy", "_foreach_copy", "_to_copy", "clone", "cat",
                                                         "stack", "contiguous", "split_with_sizes_copy",
                                                         "_chunk_cat", "chunk_cat", "all_gather_copy_in"});
/// Flop of an element of the largest tensor, as program/ops counts them; 1 where nothing stands here.
constexpr auto kFlopPerElement =
    std::to_array<std::pair<std::string_view, double>>({{"gelu", 10},
                                                        {"gelu_backward", 18},
                                                        {"_softmax", 5},
                                                        {"_softmax_backward_data", 4},
                                                        {"_log_softmax", 4},
                                                        {"_log_softmax_backward_data", 4},
                                                        {"native_layer_norm", 7},
                                                        {"native_layer_norm_backward", 14},
                                                        {"_fused_rms_norm", 4},
                                                        {"_fused_rms_norm_backward", 10},
                                                        {"silu", 4},
                                                        {"silu_backward", 9},
                                                        {"_fused_adamw", 12},
                                                        {"_fused_adam", 12}});

template <class Names>
bool has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// "mm" of "aten::mm", "add" of "aten::add_"; `in_place` where it was one.
std::string_view short_name(std::string_view op, bool& in_place) {
  op.remove_prefix(std::min(op.size(), op.rfind(':') + 1));
  in_place = op.size() > 1 && op.ends_with('_');
  if (in_place) op.remove_suffix(1);
  return op;
}

double bytes_of_element(std::string_view dtype) {
  static const std::map<std::string_view, double> kBytes = {
      {"float64", 8}, {"int64", 8},    {"complex64", 8}, {"float32", 4},    {"int32", 4},
      {"float16", 2}, {"bfloat16", 2}, {"int16", 2},     {"complex128", 16}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 1 : found->second;
}

double bytes_of(const TensorNote& tensor) {
  const double all = tensor.elements() * bytes_of_element(tensor.dtype);
  return tensor.bytes > 0 ? std::min(all, static_cast<double>(tensor.bytes)) : all;
}

bool is_attention(std::string_view name) {
  return name.find("attention") != std::string_view::npos || name.starts_with("_flash_attn");
}

/// Whether queries are [B, T, H, D] rather than [B, H, T, D].
bool has_heads_inside(std::string_view name) {
  return name.starts_with("_flash_att") || name.starts_with("_efficient_attention");
}

/// The first operand of a matrix product or of attention among the inputs.
std::size_t first_operand(std::string_view name) {
  return name.find("add") != std::string_view::npos || (is_attention(name) && name.ends_with("backward")) ? 1
                                                                                                          : 0;
}

/// As rooflm calls what a product computes in.
std::string product_dtype(const OperatorNote& note, std::string_view name) {
  const std::size_t operand = first_operand(name);
  const std::string dtype = operand < note.in.size() ? note.in[operand].dtype : "";
  if (dtype == "bfloat16") return "bf16";
  if (dtype == "float16") return "fp16";
  if (dtype == "float32") return note.has_tf32 ? "tf32" : "fp32";
  if (dtype == "float64") return "fp64";
  return dtype.starts_with("float8") ? "fp8" : dtype;
}

const TensorNote* tensor(const std::vector<TensorNote>& all, std::size_t i, std::size_t rank) {
  return i < all.size() && all[i].shape.size() >= rank ? &all[i] : nullptr;
}

double at(const TensorNote& tensor, std::size_t from_end) {
  return static_cast<double>(tensor.shape[tensor.shape.size() - 1 - from_end]);
}

/// [.., M, K] x [.., K, N], of which the first is `in[first]`. Grouped: each row of [T, K] meets one of
/// [E, K, N], each column of [K, T] one of [E, M, K], and the sum of [M, T] x [T, N] is cut into E parts.
double product_flop(const OperatorNote& note, std::size_t first) {
  const TensorNote* a = tensor(note.in, first, 2);
  const TensorNote* b = tensor(note.in, first + 1, 1);
  if (a == nullptr || b == nullptr) return 0;
  const double flop = 2 * a->elements() * (b->shape.size() < 2 ? 1 : at(*b, 0));
  const bool is_of_one = a->shape.size() > 2 && b->shape.size() == 2;
  return is_of_one ? flop / static_cast<double>(std::max<std::int64_t>(1, a->shape[0])) : flop;
}

/// q [B, H, Tq, D], k [B, Hk, Tk, D], v [B, Hk, Tk, Dv] from `in[first]` on, or [B, T, H, D]. Of sequences
/// that are packed, [all T, H, D], the lengths are not known.
double attention_flop(const OperatorNote& note, std::string_view name, std::size_t first) {
  const std::size_t rank = has_heads_inside(name) ? 4 : 3;
  const TensorNote* q = tensor(note.in, first, rank);
  const TensorNote* k = tensor(note.in, first + 1, rank);
  const TensorNote* v = tensor(note.in, first + 2, rank);
  if (q == nullptr || k == nullptr || v == nullptr) return 0;
  const double keys = at(*k, has_heads_inside(name) ? 2 : 1);
  return 2 * q->elements() * keys * (1 + at(*v, 0) / std::max(1.0, at(*q, 0)));
}

double convolution_flop(const TensorNote* out, const TensorNote* weight) {
  if (out == nullptr || weight == nullptr) return 0;
  return 2 * out->elements() * weight->elements() /
         std::max<double>(1, static_cast<double>(weight->shape[0]));
}

double matmul_flop(const OperatorNote& note, std::string_view name) {
  if (has(kProducts, name)) return product_flop(note, first_operand(name));
  if (name == "linear") {  // its weight is [N, K]
    const TensorNote* weight = tensor(note.in, 1, 2);
    return weight == nullptr ? 0 : 2 * note.in[0].elements() * at(*weight, 1);
  }
  if (is_attention(name)) {
    return (name.ends_with("backward") ? 2 : 1) * attention_flop(note, name, first_operand(name));
  }
  if (name == "convolution" || name == "cudnn_convolution") {
    return convolution_flop(tensor(note.out, 0, 2), tensor(note.in, 1, 2));
  }
  // The gradients of the input and of the weight.
  if (name == "convolution_backward") {
    return 2 * convolution_flop(tensor(note.in, 0, 2), tensor(note.in, 2, 2));
  }
  return 0;
}

/// Of causal attention the half below the diagonal, and softmax's 5 flop of each score, which is 4 D flop.
void set_attention(const OperatorNote& note, std::string_view name, OperatorWork& work) {
  const TensorNote* q = tensor(note.in, first_operand(name), 3);
  if (q == nullptr) return;
  work.elementwise_flop = 5 * work.matmul_flop / (4 * std::max(1.0, at(*q, 0)));
  const double queries = at(*q, has_heads_inside(name) ? 2 : 1);
  if (note.is_causal) work.needed_flop *= (queries + 1) / (2 * std::max(1.0, queries));
  work.needed_flop *= note.needed;
}

void set_bytes(const OperatorNote& note, std::string_view name, bool in_place, OperatorWork& work) {
  const auto add = [](double sum, const TensorNote& one) { return sum + bytes_of(one); };
  const double read = std::accumulate(note.in.begin(), note.in.end(), 0.0, add);
  const double written = std::accumulate(note.out.begin(), note.out.end(), 0.0, add);
  const double first = note.in.empty() ? 0 : bytes_of(note.in.front());
  work.bytes_written = in_place ? first : written;
  if (has(kWriters, name)) return;
  work.bytes_read = read;
  if (name == "copy" || name == "_foreach_copy") work.bytes_read = read - first;
  // The first is what it writes: of what is gathered, all; of copies into a part of it, that part.
  if (name == "_allgather_base" || name == "_reduce_scatter_base") work.bytes_read = read - first;
  if (name == "all_gather_copy_in") work.bytes_read = work.bytes_written = first;
  if (has(kGathers, name)) work.bytes_read = read - first + std::min(first, written);
  // Of the probabilities only those of the targets are looked at.
  if (name == "nll_loss_backward" && note.in.size() > 1) work.bytes_read = read - bytes_of(note.in[1]);
  if (in_place && has(kScatters, name)) {
    work.bytes_read = read - first;
    work.bytes_written = std::min(first, read - first);
  }
  if (!in_place || !name.starts_with("_fused_adam") || note.in.size() < 4) return;
  // Weights and two moments of each are written, gradients only read.
  work.bytes_written = bytes_of(note.in[0]) + bytes_of(note.in[2]) + bytes_of(note.in[3]);
}

double elementwise_flop(const OperatorNote& note, std::string_view name) {
  double most = 0;
  for (const auto* tensors : {&note.in, &note.out}) {
    for (const TensorNote& one : *tensors) most = std::max(most, one.elements());
  }
  if (has(kWriters, name) || has(kGathers, name) || has(kMoves, name)) return 0;
  const auto known = std::ranges::find(kFlopPerElement, name, &std::pair<std::string_view, double>::first);
  return most * (known == kFlopPerElement.end() ? 1 : known->second);
}

std::optional<TensorNote> read_tensor(const nlohmann::json& row) {
  TensorNote note;
  std::size_t at = 0;
  if (!row.is_array() || row.empty()) return std::nullopt;
  note.is_list = row.at(0) == "list";
  if (note.is_list) ++at;
  note.dtype = row.at(at).get<std::string>();
  note.shape = row.at(at + 1).get<std::vector<std::int64_t>>();
  if (row.size() > at + 2) note.bytes = row.at(at + 2).get<std::int64_t>();
  const bool is_negative = std::ranges::any_of(note.shape, [](std::int64_t extent) { return extent < 0; });
  if (is_negative || note.bytes < 0 || note.elements() > kMostElements) return std::nullopt;
  return note;
}

bool read_tensors(const nlohmann::json& rows, std::vector<TensorNote>& into) {
  for (const nlohmann::json& one : rows) {
    std::optional<TensorNote> note = read_tensor(one);
    if (!note) return false;
    into.push_back(std::move(*note));
  }
  return true;
}

}  // namespace

double TensorNote::elements() const {
  return std::accumulate(shape.begin(), shape.end(), 1.0, [](double product, std::int64_t extent) {
    return product * static_cast<double>(extent);
  });
}

std::string TensorNote::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::optional<OperatorNote> read_operator(std::string_view text) {
  try {
    const nlohmann::json object = core::parse_json_object(text, "the stream", "an operator");
    OperatorNote note{.op = object.at("op").get<std::string>(),
                      .phase = object.at("phase").get<std::string>(),
                      .module = object.value("module", std::string()),
                      .is_recomputed = object.value("again", 0) != 0,
                      .is_causal = object.value("causal", 0) != 0,
                      .has_tf32 = object.value("tf32", 0) != 0,
                      .count = object.value("n", std::int64_t{1}),
                      .needed = object.value("needed", 1.0),
                      .cold_bytes = object.value("cold", std::int64_t{0})};
    for (const nlohmann::json& call : object.value("calls", nlohmann::json::array())) {
      if (!call.is_number_unsigned()) return std::nullopt;
      note.calls.push_back(call.get<std::uint32_t>());
    }
    constexpr std::int64_t kMostCalls = 1'000'000;
    if (note.count < 1 || note.count > kMostCalls) return std::nullopt;
    if (!(note.needed >= 0 && note.needed <= 1) || note.cold_bytes < 0) return std::nullopt;
    if (!read_tensors(object.at("in"), note.in) || !read_tensors(object.at("out"), note.out))
      return std::nullopt;
    return note;
  } catch (const core::Error&) {
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

std::optional<OperatorWork> work_of(const OperatorNote& note) {
  const std::string_view room = std::string_view(note.op).substr(0, note.op.find(':'));
  if (!has(kPriced, room)) return std::nullopt;
  bool in_place = false;
  const std::string_view name = short_name(note.op, in_place);
  OperatorWork work;
  if (has(kViews, name)) return work;
  work.matmul_flop = matmul_flop(note, name);
  set_bytes(note, name, in_place, work);
  work.far_bytes = std::min(static_cast<double>(note.cold_bytes), work.bytes_read);
  if (work.matmul_flop <= 0) {
    if (!room.ends_with("c10d") && !room.ends_with("functional")) {
      work.elementwise_flop = elementwise_flop(note, name);
    }
    return work;
  }
  work.dtype = product_dtype(note, name);
  work.needed_flop = work.matmul_flop;
  if (is_attention(name)) set_attention(note, name, work);
  return work;
}

}  // namespace rooflm::foreign
