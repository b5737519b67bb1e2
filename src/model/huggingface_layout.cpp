// How rooflm's parameters map to the tensors of Hugging Face files.
//
// The table of families names the tensors of a module of ours and says how they are packed: a name, a list of
// names for the parts of a parameter (queries, keys, values; gate, up), or an object with
//   names       as above; "{}" is the number of the expert, or of the head
//   weight      what follows the name, ".weight" if absent; bias likewise
//   transposed  files have [in, out]
//   rows        of parts with one name: "grouped": for each key/value head its queries, its key, its value;
//               "quarters": for each quarter of the heads its queries, its values, its keys (CodeGen);
//               "alternating": gate and up in turn; else one part after the other
//   flat        experts have no dimension of their own
//   shape       of the file's tensor, -1 for the number of rows
// A key "module:parallel" is for models with that Residual. Tensors that several parameters name are stacked.
#include "model/huggingface_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "model/huggingface_family.h"

namespace rooflm::model {
namespace {

using core::Shape;
using nlohmann::json;

/// "h.3.ln1.weight", parsed: the layer, the module "ln1", the suffix ".weight".
struct Name {
  std::int64_t layer = -1;
  std::string module, suffix = ".weight";

  explicit Name(const std::string& name) : module(name) {
    if (name.starts_with("h.")) {
      const auto dot = name.find('.', 2);
      layer = std::stoll(name.substr(2, dot - 2));
      module = name.substr(dot + 1);
    }
    for (const std::string end : {".weight", ".bias"}) {
      if (!module.ends_with(end)) continue;
      module.resize(module.size() - end.size());
      suffix = end;
      break;
    }
  }
  [[nodiscard]] bool is_of_experts() const { return module.starts_with("feed_forward.experts."); }
};

/// What the table says of one module.
struct Packing {
  std::vector<std::string> names;
  std::string suffix, rows;
  bool transposed = false, flat = false;
  std::vector<std::int64_t> shape{};

  Packing(const json& said, const std::string& kind) {
    const json object = said.is_object() ? said : json{{"names", said}};
    const json& list = object.at("names");
    names = list.is_array() ? list.get<std::vector<std::string>>() : std::vector<std::string>{list};
    suffix = object.value(kind.substr(1), kind);
    rows = object.value("rows", "");
    transposed = object.value("transposed", false);
    flat = object.value("flat", false);
    shape = object.value("shape", shape);
  }
  [[nodiscard]] bool is_repeated() const { return names.front().find("{}") != std::string::npos; }
};

/// Rows of a parameter that are one of its parts, or of the expert or head `repeat`.
struct Segment {
  std::size_t part = 0;
  std::int64_t repeat = 0, count = 0, row = 0;
};

/// Heads whose rows files have in pairs (2i, 2i + 1), programs as halves. dims 0: rows are as they are.
struct Heads {
  std::int64_t size = 0, plain = 0, dims = 0;
};

constexpr std::string_view name_of(Residual residual) {
  return residual == Residual::serial ? "serial" : residual == Residual::parallel ? "parallel" : "one_norm";
}

/// Makes the list of tensors, one parameter after the other.
class Mapper {
 public:
  Mapper(const ModelConfig& config, ExpertPacking packing)
      : c_(config), family_(family_of(config)), packing_(packing) {}

  void add(std::size_t number, const Parameter& parameter) {
    const Name name(parameter.name);
    const Packing packing = packing_of(name);
    std::vector<std::size_t> touched;
    std::int64_t unit = 0;  // first row of the parts that alternate
    for (const Segment& segment : segments(name, packing, parameter)) {
      const std::size_t part = std::min(segment.part, packing.names.size() - 1);
      const std::size_t at = tensor_of(full_name(name, packing, part, segment.repeat));
      FileTensor& tensor = tensors_[at];
      if (tensor.pieces.empty() || tensor.pieces.back().parameter != number) {
        tensor.pieces.push_back({.parameter = number});
        touched.push_back(at);
      }
      if (segment.part == 0) unit = tensor.rows;
      auto& runs = tensor.pieces.back().runs;
      if (packing.rows == "alternating") {
        const auto part_row = static_cast<std::int64_t>(segment.part);
        runs.push_back(
            {.file_row = unit + part_row, .row = segment.row, .count = segment.count, .file_step = 2});
      } else {
        add_runs(runs, tensor.rows, segment, heads_of(name, segment.part));
      }
      tensor.rows += segment.count;
    }
    for (const std::size_t at : touched) finish(tensors_[at], name, packing, parameter);
  }

  std::vector<FileTensor> take() && { return std::move(tensors_); }

 private:
  [[nodiscard]] Packing packing_of(const Name& name) const {
    const json& table = family_.tensors;
    auto said = table.find(fmt::format("{}:{}", name.module, name_of(c_.arch.residual)));
    if (said == table.end()) said = table.find(name.module);
    if (said == table.end()) {
      throw core::Unavailable(fmt::format("{}: files of {} have no known tensor for {}", c_.name,
                                          family_.types.front(), name.module));
    }
    Packing packing(*said, name.suffix);
    if (packing_ != ExpertPacking::as_family && name.is_of_experts() && packing.is_repeated()) {
      const std::string stem = packing.names.front().substr(0, packing.names.front().find("{}"));
      packing.names = {stem + (name.module.ends_with("fc1") ? "gate_up_proj" : "down_proj")};
      packing.suffix = "";
      packing.transposed = packing_ == ExpertPacking::packed_transposed;
    }
    return packing;
  }

  [[nodiscard]] std::string full_name(const Name& name, const Packing& packing, std::size_t part,
                                      std::int64_t repeat) const {
    std::string full = packing.names[part];
    if (const auto at = full.find("{}"); at != std::string::npos) full.replace(at, 2, std::to_string(repeat));
    if (name.module == "lm_head") return full + packing.suffix;
    std::string prefix = family_.tensors.at("prefix");
    if (name.layer >= 0)
      prefix += fmt::format("{}{}.", family_.tensors.at("layer").get<std::string>(), name.layer);
    return prefix + full + packing.suffix;
  }

  std::size_t tensor_of(const std::string& name) {
    const auto [at, is_new] = numbers_.emplace(name, tensors_.size());
    if (is_new) tensors_.push_back({.name = name});
    return at->second;
  }

  /// The parts in the order of the file.
  [[nodiscard]] std::vector<Segment> segments(const Name& name, const Packing& packing,
                                              const Parameter& parameter) const {
    const std::string& module = name.module;
    if (module == "attention.qkv") return qkv_segments(c_.attention_of(name.layer), packing.rows);
    const bool has_padding = module == "wte" || module == "lm_head";
    const std::int64_t width = parameter.shape.rank() == 1 || is_expert_bias(name) ? 1 : parameter.shape[-1];
    const std::int64_t rows = has_padding ? c_.vocab : parameter.shape.numel() / width;
    const std::int64_t repeats = name.is_of_experts()    ? c_.experts.count
                                 : packing.is_repeated() ? rows / c_.head_dim
                                                         : 1;
    const bool is_pair = (module.ends_with("fc1") && c_.arch.gated) || module.ends_with(".act");
    const std::int64_t parts = is_pair ? 2 : 1;
    std::vector<Segment> list;
    const std::int64_t count = rows / (repeats * parts);
    for (std::int64_t i = 0; i < repeats * parts; ++i) {
      list.push_back({.part = static_cast<std::size_t>(i % parts),
                      .repeat = i / parts,
                      .count = count,
                      .row = i * count});
    }
    return list;
  }

  /// Queries, keys and values: whole, or those of some heads after those of others.
  [[nodiscard]] std::vector<Segment> qkv_segments(const AttentionSize& size, const std::string& rows) const {
    constexpr std::int64_t kQuarters = 4;
    const bool is_in_quarters = rows == "quarters";
    const std::int64_t groups = rows == "grouped" ? size.kv_heads : is_in_quarters ? kQuarters : 1;
    if (size.kv_heads % groups != 0)
      throw core::InputError(fmt::format("{}: {} heads, expected a multiple of 4", c_.name, size.kv_heads));
    const std::int64_t q = size.heads * size.qk_dim, k = size.kv_heads * size.qk_dim;
    const std::size_t parts = size.values_are_keys ? 2 : 3;
    std::vector<Segment> list;
    for (std::int64_t i = 0; i < groups; ++i) {
      list.push_back({.part = 0, .count = q / groups, .row = i * (q / groups)});
      for (std::size_t each = 1; each < parts; ++each) {
        const std::size_t part = is_in_quarters ? parts - each : each;
        const std::int64_t first = q + (static_cast<std::int64_t>(part) - 1) * k;
        list.push_back({.part = part, .count = k / groups, .row = first + i * (k / groups)});
      }
    }
    return list;
  }

  [[nodiscard]] Heads heads_of(const Name& name, std::size_t part) const {
    const std::string& module = name.module;
    if (!c_.rotary.interleaved || name.layer < 0 || !c_.rotary.is_in(name.layer)) return {};
    const LatentAttention& l = c_.latent;
    if (l.kv_rank > 0) {
      if (module == "attention.k_rotary") return {.size = l.rotary_dim, .dims = l.rotary_dim};
      if (module != "attention.q" && module != "attention.q_b") return {};
      return {.size = l.plain_dim + l.rotary_dim, .plain = l.plain_dim, .dims = l.rotary_dim};
    }
    const bool is_rotated = (module == "attention.qkv" && part < 2) || module == "attention.q_norm" ||
                            module == "attention.k_norm";
    if (!is_rotated) return {};
    return {.size = c_.head_dim, .dims = c_.rotary.dims > 0 ? c_.rotary.dims : c_.head_dim};
  }

  static void add_runs(std::vector<Run>& runs, std::int64_t file_row, const Segment& segment,
                       const Heads& heads) {
    if (heads.dims == 0) {
      runs.push_back({.file_row = file_row, .row = segment.row, .count = segment.count});
      return;
    }
    const std::int64_t half = heads.dims / 2;
    const std::int64_t rest = heads.size - heads.plain - heads.dims;
    for (std::int64_t first = 0; first < segment.count; first += heads.size) {
      std::int64_t from = file_row + first, to = segment.row + first;
      if (heads.plain > 0) runs.push_back({.file_row = from, .row = to, .count = heads.plain});
      from += heads.plain;
      to += heads.plain;
      runs.push_back({.file_row = from, .row = to, .count = half, .file_step = 2});
      runs.push_back({.file_row = from + 1, .row = to + half, .count = half, .file_step = 2});
      if (rest > 0) runs.push_back({.file_row = from + heads.dims, .row = to + heads.dims, .count = rest});
    }
  }

  [[nodiscard]] static bool is_expert_bias(const Name& name) {
    return name.is_of_experts() && name.suffix == ".bias";
  }

  void finish(FileTensor& tensor, const Name& name, const Packing& packing,
              const Parameter& parameter) const {
    const bool is_vector = parameter.shape.rank() == 1 || is_expert_bias(name);
    tensor.width = is_vector ? 1 : parameter.shape[-1];
    tensor.transposed = packing.transposed && !is_vector;
    const bool is_packed = name.is_of_experts() && !packing.is_repeated();
    tensor.matrices = is_packed ? c_.experts.count : 1;
    const bool is_weight = parameter.init == Parameter::Init::ones && name.suffix == ".weight";
    if (c_.arch.norm_offset && is_weight) tensor.less = 1;
    std::int64_t out = tensor.rows / tensor.matrices, in = tensor.width;
    if (tensor.transposed) std::swap(out, in);
    std::vector<std::int64_t> extents;
    if (is_packed && !packing.flat) extents.push_back(tensor.matrices);
    extents.push_back(packing.flat ? tensor.matrices * out : out);
    if (!is_vector) extents.push_back(in);
    const bool is_norm = name.module == "attention.q_norm" || name.module == "attention.k_norm";
    if (c_.qk_norm == QkNorm::heads && is_norm && !packing.is_repeated())
      extents = {tensor.rows / c_.head_dim, c_.head_dim};
    if (!packing.shape.empty()) {
      extents = packing.shape;
      std::ranges::replace(extents, -1, tensor.rows);
    }
    tensor.shape = Shape(std::span<const std::int64_t>(extents));
  }

  const ModelConfig& c_;
  const Family& family_;
  ExpertPacking packing_;
  std::vector<FileTensor> tensors_;
  std::map<std::string, std::size_t> numbers_;
};

/// out [columns, rows] = transpose of in [rows, columns], in tiles that stay in cache.
void transpose(std::span<const float> in, std::int64_t rows, std::int64_t columns, std::span<float> out) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (std::int64_t c = c0; c < std::min(c0 + kTile, columns); ++c) {
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
          out[static_cast<std::size_t>(c * rows + r)] = in[static_cast<std::size_t>(r * columns + c)];
        }
      }
    }
  }
}

/// The matrices of a file tensor, each transposed. `to_rows`: from the file's form to that of parameters.
std::vector<float> transposed(const FileTensor& t, std::span<const float> values, bool to_rows) {
  std::vector<float> out(values.size());
  const std::int64_t rows = t.rows / t.matrices;
  const auto one = static_cast<std::size_t>(rows * t.width);
  for (std::size_t at = 0; at < values.size(); at += one) {
    transpose(values.subspan(at, one), to_rows ? t.width : rows, to_rows ? rows : t.width,
              std::span(out).subspan(at, one));
  }
  return out;
}

/// Calls visit(first element in the file, first in the parameter) for each row of a piece.
template <class Visit>
void for_rows(const FileTensor& tensor, const Piece& piece, const Visit& visit) {
  for (const Run& run : piece.runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      visit(static_cast<std::size_t>((run.file_row + i * run.file_step) * tensor.width),
            static_cast<std::size_t>((run.row + i) * tensor.width));
    }
  }
}

}  // namespace

std::vector<FileTensor> file_tensors(const std::vector<Parameter>& parameters, const ModelConfig& config,
                                     ExpertPacking packing) {
  Mapper mapper(config, packing);
  for (std::size_t i = 0; i < parameters.size(); ++i) mapper.add(i, parameters[i]);
  return std::move(mapper).take();
}

void to_file(const FileTensor& tensor, const Piece& piece, std::span<const float> parameter,
             std::span<float> file) {
  std::vector<float> rows;
  if (tensor.transposed) rows = transposed(tensor, file, true);
  const std::span<float> out = tensor.transposed ? std::span(rows) : file;
  const auto width = static_cast<std::size_t>(tensor.width);
  for_rows(tensor, piece, [&](std::size_t in_file, std::size_t in_parameter) {
    for (std::size_t i = 0; i < width; ++i) out[in_file + i] = parameter[in_parameter + i] - tensor.less;
  });
  if (tensor.transposed) std::ranges::copy(transposed(tensor, rows, false), file.begin());
}

void from_file(const FileTensor& tensor, const Piece& piece, std::span<const float> file,
               std::span<float> parameter) {
  std::vector<float> rows;
  if (tensor.transposed) rows = transposed(tensor, file, true);
  const std::span<const float> in = tensor.transposed ? std::span<const float>(rows) : file;
  const auto width = static_cast<std::size_t>(tensor.width);
  for_rows(tensor, piece, [&](std::size_t in_file, std::size_t in_parameter) {
    for (std::size_t i = 0; i < width; ++i) parameter[in_parameter + i] = in[in_file + i] + tensor.less;
  });
}

std::int64_t plain_row(const FileTensor& tensor, const Piece& piece) {
  if (tensor.transposed || tensor.less != 0 || piece.runs.front().file_row != 0) return -1;
  std::int64_t next = piece.runs.front().row;
  for (const Run& run : piece.runs) {
    if (run.row != next || run.file_row != run.row - piece.runs.front().row || run.file_step != 1) return -1;
    next += run.count;
  }
  return next - piece.runs.front().row == tensor.rows ? piece.runs.front().row : -1;
}

std::string weight_name(std::string_view stored_name, const ModelConfig& config) {
  const json& table = family_of(config).tensors;
  std::string name(stored_name);
  for (const json& end : table.at("ignored")) {
    if (name.ends_with(end.get<std::string>())) return "";
  }
  // Models of several media keep the text model in language_model, or have language_model in the text model.
  constexpr std::string_view kText = "language_model.";
  if (const auto at = name.find(kText); at != std::string::npos && !config.other_parts.empty())
    name = at == 0 ? name.substr(kText.size()) : name.erase(at, kText.size());
  const std::string head = table.at("lm_head");
  if (name.starts_with(head + ".")) return config.tied_head && !name.ends_with(".bias") ? "" : name;
  const std::string prefix = table.at("prefix");
  const std::string base = prefix.substr(0, prefix.find('.') + 1);
  return name.starts_with(base) ? name : base + name;
}

bool is_of_other_parts(const std::string& name, const ModelConfig& config) {
  if (config.other_parts.empty()) return false;
  const json& table = family_of(config).tensors;
  const std::string layers = table.at("prefix").get<std::string>() + table.at("layer").get<std::string>();
  if (!name.starts_with(layers)) return true;
  const std::string number = name.substr(layers.size(), name.find('.', layers.size()) - layers.size());
  return number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos ||
         std::stoll("0" + number) >= config.layers;
}

}  // namespace rooflm::model
