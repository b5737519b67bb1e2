// Packed weights in the files of other tools.
#include "model/quantized_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"

namespace rooflm::model {
namespace {

using core::DType;
using core::InputError;
using core::PackedMatrix;
using core::Shape;
using core::WeightFormat;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kKey = "quantization_config";
constexpr std::int64_t kNf4Block = 64, kFileGroup = core::kFileScaleGroup, kOurGroup = core::kScaleGroup;
constexpr const char* kState = ".quant_state.bitsandbytes__nf4";

std::int64_t bits_of(WeightFormat format) {
  return format == WeightFormat::int4 || format == WeightFormat::nf4 ? 4 : 8;
}

/// The weights of compressed-tensors' only group, or nothing.
json weights_of(const json& config) {
  const json groups = config.value("config_groups", json::object());
  if (groups.size() != 1) return {};
  return groups.begin()->value("weights", json());
}

bool is_int4_group(const json& weights) {
  return weights.value("strategy", "") == "group" &&
         weights.value("group_size", json()) == json(core::packed_group(DType::int4, 0));
}

WeightFormat compressed_format(const json& config) {
  const json weights = weights_of(config);
  if (!weights.is_object() || weights.value("symmetric", json()) != json(true)) return WeightFormat::plain;
  const std::string format = config.value("format", ""), type = weights.value("type", "");
  const json bits = weights.value("num_bits", json());
  const bool is_by_row = weights.value("strategy", "") == "channel";
  if (format == "pack-quantized" && type == "int" && bits == json(4) && is_int4_group(weights))
    return WeightFormat::int4;
  if (format == "pack-quantized" && type == "int" && bits == json(8) && is_by_row) return WeightFormat::int8;
  if (format == "float-quantized" && type == "float" && bits == json(8) && is_by_row)
    return WeightFormat::fp8;
  return WeightFormat::plain;
}

const std::byte* bytes_at(const StoredTensor& tensor) { return tensor.bytes.data(); }

template <class T>
std::span<const std::byte> bytes_of(const T* data, std::size_t count) {
  return std::as_bytes(std::span(data, count));
}

/// Two 4-bit codes a byte, in the other order: bitsandbytes has the first in the upper half.
void swap_halves(std::span<std::byte> codes) {
  for (std::byte& two : codes) two = two << 4U | two >> 4U;
}

[[noreturn]] void fail(const StoredTensor& tensor, const std::string& what) {
  throw InputError(fmt::format("{}: tensor {} {}", tensor.file.string(), core::printable(tensor.name), what));
}

/// The tensor must hold these floats: other tables are of other codes.
void expect_table(const StoredTensor& tensor, std::span<const float> table) {
  std::vector<float> values(table.size());
  read_floats(tensor, values);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!(std::abs(values[i] - table[i]) <= 1e-6F))
      fail(tensor, fmt::format("holds {} at element {}, expected {}", values[i], i, table[i]));
  }
}

/// The offset of the second scales, from the JSON of a quant state.
float offset_of(const StoredTensor& state, std::int64_t out, std::int64_t in) {
  std::string text(reinterpret_cast<const char*>(bytes_at(state)), state.bytes.size());
  while (!text.empty() && (text.back() == ' ' || text.back() == '\0')) text.pop_back();
  const json parsed =
      core::parse_json_object(text, state.file.string() + ": " + state.name, "the state of nf4");
  const auto offset = parsed.find("nested_offset");
  if (parsed.value("blocksize", json()) != json(kNf4Block) ||
      parsed.value("nested_blocksize", json()) != json(256) ||
      parsed.value("shape", json()) != json({out, in}) || offset == parsed.end() || !offset->is_number())
    fail(state,
         fmt::format("expected blocksize 64, nested_blocksize 256, nested_offset and the shape [{}, {}]", out,
                     in));
  return offset->get<float>();
}

void read_nf4(const std::vector<QuantizedPart>& parts, std::int64_t out, std::int64_t in,
              const std::function<const StoredTensor&(const std::string&)>& find, std::byte* to) {
  const std::int64_t count = out * in, blocks = count / kNf4Block;
  std::memcpy(to, bytes_at(find(parts[0].name)), static_cast<std::size_t>(count / 2));
  swap_halves({to, static_cast<std::size_t>(count / 2)});
  to += count / 2;
  std::memcpy(to, bytes_at(find(parts[1].name)), static_cast<std::size_t>(blocks));
  to += blocks;
  expect_table(find(parts[2].name), core::kNf4Values);
  expect_table(find(parts[4].name), {core::kScaleCodes, 256});
  std::vector<float> second(static_cast<std::size_t>(parts[3].shape.numel()));
  read_floats(find(parts[3].name), second);
  const float offset = offset_of(find(parts[5].name), out, in);
  for (std::int64_t group = 0; group * kOurGroup < count; ++group) {
    const float pair[2] = {second[static_cast<std::size_t>(group * kOurGroup / kFileGroup)], offset};
    std::memcpy(to + group * 8, pair, sizeof pair);
  }
}

/// Where the planes of a matrix in memory form begin, and the bytes of a row in each.
struct Planes {
  std::int64_t code_row = 0, scale_row = 0, scales_at = 0;
  explicit Planes(const PackedMatrix& m)
      : code_row(m.code_bytes() / m.rows),
        scale_row(m.width / core::packed_group(m.dtype, m.width) * 4),
        scales_at(m.code_bytes()) {}
};

void copy_nf4(const PackedMatrix& from, std::int64_t first, std::int64_t to_first, std::int64_t count,
              std::int64_t to_count, std::byte* to) {
  if (first % kOurGroup != 0 || to_first % kOurGroup != 0 || count % kOurGroup != 0)
    throw core::Unavailable(
        fmt::format("nf4: the file has rows of a matrix in another order, or its parts do not begin "
                    "at multiples of {} numbers",
                    kOurGroup));
  std::memcpy(to + to_first / 2, from.data + first / 2, static_cast<std::size_t>(count / 2));
  std::memcpy(to + to_count / 2 + to_first / kNf4Block, from.scales() + first / kNf4Block,
              static_cast<std::size_t>(count / kNf4Block));
  std::memcpy(to + to_count / 2 + to_count / kNf4Block + to_first / kOurGroup * 8,
              from.second_scales() + first / kOurGroup * 2, static_cast<std::size_t>(count / kOurGroup * 8));
}

}  // namespace

namespace {

/// What a config.json says of how weights are stored: of a model of several media, its text model may say it.
const json* quantization_in(const json& root) {
  const auto said = [](const json& object) -> const json* {
    const auto found = object.find(kKey);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  };
  if (const json* of_all = said(root)) return of_all;
  for (const char* part : {"text_config", "llm_config", "language_config"}) {
    const auto text = root.find(part);
    if (text == root.end() || !text->is_object()) continue;
    if (const json* of_text = said(*text)) return of_text;
  }
  return nullptr;
}

/// plain for forms that are not read.
WeightFormat format_of(const json& config) {
  try {
    const std::string method = config.value("quant_method", "");
    if (method == "compressed-tensors") return compressed_format(config);
    if (method == "bitsandbytes" && config.value("bnb_4bit_quant_type", "") == "nf4" &&
        config.value("bnb_4bit_use_double_quant", false))
      return WeightFormat::nf4;
  } catch (const json::exception&) {  // a value of another type
  }
  return WeightFormat::plain;
}

/// Who packed them, as far as the file says.
std::string method_of(const json& config) {
  for (const char* key : {"quant_method", "quant_algo"}) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_string() && !found->get_ref<const std::string&>().empty())
      return core::printable(found->get_ref<const std::string&>());
  }
  return "a method without a name";
}

}  // namespace

std::string unread_weights(const json& root) {
  const json* said = quantization_in(root);
  if (said == nullptr || !said->is_object() || format_of(*said) != WeightFormat::plain) return "";
  return method_of(*said);
}

WeightFormat parse_weight_format(std::string_view config, const std::string& path, Unread unread) {
  const json root = core::parse_python_json_object(config, path, "the configuration");
  const json* said = quantization_in(root);
  if (said == nullptr) return WeightFormat::plain;
  if (!said->is_object()) throw InputError(fmt::format("{}: {} is no JSON object", path, kKey));
  const WeightFormat format = format_of(*said);
  if (format != WeightFormat::plain || unread == Unread::is_plain) return format;
  throw core::Unavailable(
      fmt::format("{}: {}: weights of '{}' in this form are not read, only compressed-tensors' symmetric "
                  "int4 in groups of 128, int8 and fp8 by channel, and bitsandbytes' nf4 with double "
                  "quantization",
                  path, kKey, method_of(*said)));
}

WeightFormat read_weight_format(const std::filesystem::path& directory, Unread unread) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory / "config.json", ignored)) return WeightFormat::plain;
  const core::MappedFile file(directory / "config.json");
  return parse_weight_format(file.text(), file.path().string(), unread);
}

std::string with_weight_format(const std::string& config, WeightFormat format) {
  ordered_json root = ordered_json::parse(config);
  if (format == WeightFormat::nf4) {
    root[kKey] = {{"quant_method", "bitsandbytes"},
                  {"load_in_4bit", true},
                  {"load_in_8bit", false},
                  {"bnb_4bit_quant_type", "nf4"},
                  {"bnb_4bit_use_double_quant", true},
                  {"bnb_4bit_compute_dtype", "bfloat16"},
                  {"bnb_4bit_quant_storage", "uint8"},
                  {"llm_int8_skip_modules", {"lm_head"}}};
    return root.dump(2) + "\n";
  }
  const bool is_grouped = format == WeightFormat::int4;
  const ordered_json weights{
      {"num_bits", bits_of(format)},
      {"type", format == WeightFormat::fp8 ? "float" : "int"},
      {"symmetric", true},
      {"strategy", is_grouped ? "group" : "channel"},
      {"group_size", is_grouped ? ordered_json(core::packed_group(DType::int4, 0)) : ordered_json()},
      {"dynamic", false}};
  const ordered_json group{{"targets", {"Linear"}},
                           {"weights", weights},
                           {"input_activations", nullptr},
                           {"output_activations", nullptr}};
  root[kKey] = {{"quant_method", "compressed-tensors"},
                {"format", format == WeightFormat::fp8 ? "float-quantized" : "pack-quantized"},
                {"quantization_status", "compressed"},
                {"ignore", {"lm_head"}},
                {"config_groups", {{"group_0", group}}}};
  return root.dump(2) + "\n";
}

bool is_quantized(const FileTensor& tensor, const Parameter& parameter) {
  return is_layer_matrix(parameter.name, parameter.shape) && tensor.matrices == 1 &&
         tensor.pieces.size() == 1 && tensor.name.ends_with(".weight");
}

void check_format(const ModelConfig& config, WeightFormat format) {
  const std::vector<Parameter> parameters = model::parameters(config);
  for (const FileTensor& tensor : file_tensors(parameters, config)) {
    if (!is_quantized(tensor, parameters[tensor.pieces.front().parameter])) continue;
    const std::string why = core::why_not_packed(core::dtype_of(format), tensor.rows, tensor.width);
    if (!why.empty())
      throw core::UsageError(fmt::format("--weights {}: {}: {}", name_of(format), tensor.name, why));
  }
}

std::vector<QuantizedPart> quantized_parts(const std::string& name, WeightFormat format, std::int64_t out,
                                           std::int64_t in) {
  const std::int64_t count = out * in;
  if (format == WeightFormat::nf4) {
    return {{name, "U8", {count / 2, 1}},
            {name + ".absmax", "U8", {count / kNf4Block}},
            {name + ".quant_map", "F32", {16}},
            {name + ".nested_absmax", "F32", {(count + kFileGroup - 1) / kFileGroup}},
            {name + ".nested_quant_map", "F32", {256}},
            {name + kState, "U8", {}}};
  }
  const DType dtype = core::dtype_of(format);
  const QuantizedPart scale{name + "_scale", "F32", {out, in / core::packed_group(dtype, in)}};
  if (format == WeightFormat::fp8) return {{name, "F8_E4M3", {out, in}}, scale};
  return {{name + "_packed", "I32", {out, in * bits_of(format) / 32}}, scale, {name + "_shape", "I64", {2}}};
}

std::vector<std::byte> read_quantized(const std::vector<QuantizedPart>& parts, WeightFormat format,
                                      std::int64_t out, std::int64_t in,
                                      const std::function<const StoredTensor&(const std::string&)>& find) {
  const DType dtype = core::dtype_of(format);
  for (const QuantizedPart& part : parts) {
    const StoredTensor& tensor = find(part.name);
    const bool is_state = part.name.ends_with(kState);
    const bool is_type = part.dtype == "F32" ? is_float(tensor) : tensor.dtype == part.dtype;
    if (!is_type || (!is_state && tensor.shape != part.shape))
      fail(tensor, fmt::format("is {} {}, expected {} {}", tensor.dtype, tensor.shape.str(), part.dtype,
                               part.shape.str()));
  }
  std::vector<std::byte> to(static_cast<std::size_t>(core::packed_bytes(dtype, out * in, in)));
  if (format == WeightFormat::nf4) {
    read_nf4(parts, out, in, find, to.data());
    return to;
  }
  const StoredTensor& codes = find(parts[0].name);
  std::memcpy(to.data(), bytes_at(codes), codes.bytes.size());
  if (format == WeightFormat::fp8) {
    const auto is_nan = [](std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; };
    const auto bad = std::ranges::find_if(codes.bytes, is_nan);
    if (bad != codes.bytes.end())
      fail(codes, fmt::format("holds nan at element {}, expected finite numbers", bad - codes.bytes.begin()));
  }
  std::vector<float> scales(static_cast<std::size_t>(parts[1].shape.numel()));
  read_floats(find(parts[1].name), scales);
  const auto bad = std::ranges::find_if_not(scales, [](float scale) { return std::isfinite(scale); });
  if (bad != scales.end())
    fail(find(parts[1].name),
         fmt::format("holds {} at element {}, expected finite numbers", *bad, bad - scales.begin()));
  std::memcpy(to.data() + codes.bytes.size(), scales.data(), scales.size() * sizeof(float));
  if (parts.size() > 2) {
    std::int64_t shape[2] = {};
    std::memcpy(shape, bytes_at(find(parts[2].name)), sizeof shape);
    if (shape[0] != out || shape[1] != in)
      fail(find(parts[2].name), fmt::format("says [{}, {}], expected [{}, {}]", shape[0], shape[1], out, in));
  }
  return to;
}

std::vector<std::vector<std::byte>> write_quantized(const PackedMatrix& m) {
  std::vector<std::vector<std::byte>> parts;
  const auto add = [&](std::span<const std::byte> bytes) { parts.emplace_back(bytes.begin(), bytes.end()); };
  add({m.data, static_cast<std::size_t>(m.code_bytes())});
  if (m.dtype == DType::nf4) {
    swap_halves(parts.back());
    add({m.scales(), static_cast<std::size_t>(m.count() / kNf4Block)});
    add(bytes_of(core::kNf4Values, 16));
    std::vector<float> second;
    for (std::int64_t first = 0; first < m.count(); first += kFileGroup)
      second.push_back(m.second_scales()[first / kOurGroup * 2]);
    add(std::as_bytes(std::span(second)));
    add(bytes_of(core::kScaleCodes, 256));
    const ordered_json state{{"quant_type", "nf4"},
                             {"blocksize", kNf4Block},
                             {"dtype", "bfloat16"},
                             {"shape", {m.rows, m.width}},
                             {"nested_blocksize", 256},
                             {"nested_dtype", "float32"},
                             {"nested_offset", m.second_scales()[1]}};
    std::string text = state.dump();
    text.resize(kQuantStateBytes, ' ');
    add(std::as_bytes(std::span(text)));
    return parts;
  }
  add({m.scales(), static_cast<std::size_t>(m.count() / core::packed_group(m.dtype, m.width) * 4)});
  const std::int64_t shape[2] = {m.rows, m.width};
  if (m.dtype != DType::fp8_rows) add(bytes_of(shape, 2));
  return parts;
}

void copy_packed_rows(const PackedMatrix& from, const Piece& piece, bool to_parameter, std::int64_t rows,
                      std::vector<std::byte>& to) {
  const PackedMatrix target{from.dtype, rows, from.width, nullptr};
  const Planes source_planes(from), planes(target);
  for (const Run& run : piece.runs) {
    if (from.dtype == DType::nf4) {
      const std::int64_t file_at = run.file_row * from.width, at = run.row * from.width;
      if (run.file_step != 1) copy_nf4(from, 1, 1, 1, 1, to.data());  // refuses
      copy_nf4(from, to_parameter ? file_at : at, to_parameter ? at : file_at, run.count * from.width,
               target.count(), to.data());
      continue;
    }
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int64_t file_row = run.file_row + i * run.file_step, row = run.row + i;
      const std::int64_t in = to_parameter ? file_row : row, out = to_parameter ? row : file_row;
      std::memcpy(to.data() + out * planes.code_row, from.data + in * planes.code_row,
                  static_cast<std::size_t>(planes.code_row));
      std::memcpy(to.data() + planes.scales_at + out * planes.scale_row,
                  from.data + source_planes.scales_at + in * planes.scale_row,
                  static_cast<std::size_t>(planes.scale_row));
    }
  }
}

}  // namespace rooflm::model
