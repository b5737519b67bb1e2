// rooflm._native: records as tables and prices of steps, in the process of Python. The package beside it
// gives them shape and names errors.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "compile/recipe.h"
#include "core/error.h"
#include "core/names.h"
#include "devices/device.h"
#include "model/forward.h"
#include "model/huggingface.h"
#include "perfmodel/device_fit.h"
#include "perfmodel/program_totals.h"
#include "perfmodel/roofline.h"
#include "record/reader.h"
#include "report/filter.h"
#include "report/run_data.h"
#include "report/verify.h"
#include "report/views.h"

namespace py = pybind11;

namespace {

using namespace rooflm;  // NOLINT(google-build-using-namespace): all of it is what this module is about

/// Bytes of a record or of a path may be no UTF-8: they become U+FFFD, as in JSON.
py::str text_of(std::string_view text) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
}

py::object value_of(const report::Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return py::none();
  return std::visit(
      [](const auto& value) -> py::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
          return py::none();
        } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          return text_of(value);
        } else {
          return py::cast(value);
        }
      },
      cell);
}

/// Values by key, None where a row has none; columns of the table first, then what its rows hold besides.
py::dict data_of(const report::Table& table) {
  py::dict data;
  const auto add = [&](const std::string& key) {
    if (data.contains(key.c_str())) return;
    py::list values;
    for (const report::Row& row : table.rows) {
      const report::Cell* cell = row.find(key);
      values.append(cell == nullptr ? py::none() : value_of(*cell));
    }
    data[key.c_str()] = values;
  };
  for (const report::Column& column : table.columns) add(column.key);
  for (const report::Row& row : table.rows) {
    for (const auto& [key, cell] : row.cells()) add(key);
  }
  return data;
}

/// (id, title, [(key, title, unit)], {key: values}) of every table of a view.
py::list tables(const std::vector<std::filesystem::path>& paths, const std::string& view,
                const report::Filter& filter) {
  report::View made;
  {
    const py::gil_scoped_release release;
    report::find_view(view);
    report::RecordSet set = report::load(paths);
    report::apply_filter(filter, set);
    made = report::make_view(view, set);
  }
  py::list all;
  for (const report::ViewTable& table : made.tables) {
    py::list columns;
    for (const report::Column& column : table.table.columns)
      columns.append(py::make_tuple(column.key, column.title, report::unit_of(column)));
    all.append(py::make_tuple(table.id, table.title, columns, data_of(table.table)));
  }
  return all;
}

/// Whether all laws of all records hold.
bool verify(const std::vector<std::filesystem::path>& paths) {
  const py::gil_scoped_release release;
  return std::ranges::all_of(paths, [](const std::filesystem::path& path) {
    return report::all_hold(report::verify(record::Reader(path)));
  });
}

/// What `price` is asked for; sizes that are absent are the model's.
struct Asked {
  std::string model = "gpt2", dtype = "fp32", engine = "fused", phase = "step";
  std::optional<std::string> attention, recompute, arch, device;
  std::int64_t batch = 4, seq = 64;
  int grad_accum = 1;
  double clip = 1;
  std::optional<std::int64_t> layers, heads, kv_heads, d_model, d_ff, vocab;
};

/// From keywords of Python; None is as good as absent.
Asked asked_of(const py::kwargs& given) {
  std::vector<std::string> known;
  const auto take = [&]<class T>(const char* key, T& value) {
    known.emplace_back(key);
    if (!given.contains(key) || given[key].is_none()) return;
    try {
      value = given[key].cast<T>();
    } catch (const py::cast_error&) {
      throw core::UsageError(
          fmt::format("{} is not of its type: {}", key, py::repr(given[key]).cast<std::string>()));
    }
  };
  Asked asked;
  take("model", asked.model);
  take("arch", asked.arch);
  take("batch", asked.batch);
  take("seq", asked.seq);
  take("dtype", asked.dtype);
  take("engine", asked.engine);
  take("attention", asked.attention);
  take("recompute", asked.recompute);
  take("phase", asked.phase);
  take("device", asked.device);
  take("grad_accum", asked.grad_accum);
  take("clip", asked.clip);
  take("layers", asked.layers);
  take("heads", asked.heads);
  take("kv_heads", asked.kv_heads);
  take("d_model", asked.d_model);
  take("d_ff", asked.d_ff);
  take("vocab", asked.vocab);
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    if (std::ranges::find(known, name) == known.end())
      throw core::UsageError(core::unknown_name("option", name, known));
  }
  return asked;
}

model::ModelConfig config_of(const Asked& asked) {
  const auto& presets = model::preset_names();
  const bool is_preset = std::ranges::find(presets, asked.model) != presets.end();
  const bool is_directory = !is_preset && std::filesystem::is_directory(asked.model);
  model::ModelConfig config = is_directory ? model::read_config(asked.model) : model::preset(asked.model);
  model::Overrides overrides{.layers = asked.layers,
                             .heads = asked.heads,
                             .kv_heads = asked.kv_heads,
                             .d_model = asked.d_model,
                             .d_ff = asked.d_ff,
                             .vocab = asked.vocab,
                             .seq = asked.seq};
  if (asked.arch) overrides.arch = core::parse<model::Arch>(*asked.arch);
  return model::with_overrides(std::move(config), overrides);
}

compile::StepOptions options_of(const Asked& asked, const std::optional<devices::Device>& device) {
  static const std::map<std::string, core::DType> kDTypes = {
      {"fp32", core::DType::f32},  {"bf16x6", core::DType::f32}, {"tf32", core::DType::f32},
      {"bf16", core::DType::bf16}, {"fp16", core::DType::f16},   {"fp8", core::DType::bf16}};
  const auto dtype = kDTypes.find(asked.dtype);
  if (dtype == kDTypes.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : kDTypes) names.push_back(name);
    throw core::UsageError(core::unknown_name("dtype", asked.dtype, names));
  }
  if (device && !device->computes(asked.dtype))
    throw core::Unavailable(fmt::format("{} does not compute in {}", device->name, asked.dtype));
  compile::StepOptions options;
  options.engine = core::parse<compile::EngineKind>(asked.engine);
  options.attention = asked.attention ? core::parse<passes::AttentionKind>(*asked.attention)
                                      : compile::default_attention(options.engine);
  options.dtype = dtype->second;
  options.fp32_products = program::find_fp32_products(asked.dtype).value_or(program::Fp32Products::plain);
  options.fp8 = asked.dtype == "fp8";
  if (asked.recompute) options.recompute = core::parse<passes::Recompute>(*asked.recompute);
  options.micro_batches = asked.grad_accum;
  options.optimizer.clip_norm = asked.clip;
  perfmodel::fit_to_device(options, device ? *device : devices::device_of_kind(devices::Kind::cpu));
  return options;
}

/// As lab::check_sizes and the options of the command line.
void check(const Asked& asked, const model::ModelConfig& config) {
  constexpr std::int64_t kMostLayers = 100'000;
  if (!std::isfinite(asked.clip) || asked.clip < 0)
    throw core::UsageError(fmt::format("clip must be a number of at least 0, got {}", asked.clip));
  if (asked.phase != "step" && asked.grad_accum > 1)
    throw core::UsageError(
        fmt::format("phase {} has no gradients to accumulate: leave out grad_accum", asked.phase));
  if (config.layers > kMostLayers / asked.grad_accum) {
    throw core::UsageError(fmt::format("{} layers times grad_accum {}: at most {} layers can be priced",
                                       config.layers, asked.grad_accum, kMostLayers));
  }
}

program::Program program_of(const Asked& asked, const compile::StepOptions& options) {
  const model::ModelConfig config = config_of(asked);
  check(asked, config);
  if (asked.phase == "decode") {
    const model::CacheSize size{.batch = asked.batch, .positions = asked.seq};
    return compile::inference_step(model::decode(config, size, asked.seq), options);
  }
  program::Program forward = model::forward(config, asked.batch, asked.seq);
  if (asked.phase == "forward") return compile::inference_step(std::move(forward), options);
  if (asked.phase == "step") return compile::training_step(std::move(forward), options);
  throw core::UsageError(
      core::unknown_name("phase", asked.phase, std::vector<std::string>{"step", "forward", "decode"}));
}

py::dict costs(const perfmodel::Totals& totals) {
  const program::Cost& cost = totals.cost;
  py::dict all;
  all["ops"] = totals.ops;
  all["matmul_flop"] = cost.matmul_flop;
  all["elementwise_flop"] = cost.elementwise_flop;
  all["flop"] = cost.matmul_flop + cost.elementwise_flop;
  all["bytes_read"] = cost.bytes_read;
  all["bytes_written"] = cost.bytes_written;
  all["bytes"] = cost.bytes_read + cost.bytes_written;
  all["launches"] = cost.launches;
  return all;
}

/// One list for each column.
py::dict op_columns(const program::Program& program, const std::optional<perfmodel::Machine>& machine) {
  py::dict columns;
  const auto add = [&](const char* key, const auto& value) {
    if (!columns.contains(key)) columns[key] = py::list();
    columns[key].cast<py::list>().append(value);
  };
  const auto roofs = machine ? perfmodel::roofs_of(*machine, program) : std::vector<perfmodel::Roof>();
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const program::Op& op = program.ops[i];
    const program::Cost cost = program::cost_of(program, op);
    add("op", std::string(op.def->name));
    add("scope", op.scope);
    add("phase", std::string(program::name_of(op.phase)));
    add("class", std::string(program::name_of(op.def->work)));
    add("matmul_flop", cost.matmul_flop);
    add("elementwise_flop", cost.elementwise_flop);
    add("bytes_read", cost.bytes_read);
    add("bytes_written", cost.bytes_written);
    add("launches", cost.launches);
    if (!machine) continue;
    add("roof_s", roofs[i].roof_s);
    add("bound", roofs[i].bound);
  }
  return columns;
}

py::dict memory_of(const program::Program& program) {
  const passes::MemoryPlan plan = passes::plan_memory(program);
  py::dict by_role;
  std::int64_t persistent_bytes = 0;
  for (const auto& [role, bytes] : perfmodel::persistent_by_role(program)) {
    by_role[std::string(program::name_of(role)).c_str()] = bytes;
    persistent_bytes += bytes;
  }
  py::dict memory;
  memory["persistent_bytes"] = persistent_bytes;
  memory["persistent_by_role"] = by_role;
  memory["arena_bytes"] = plan.arena_bytes;
  memory["peak_live_bytes"] = plan.peak_live_bytes;
  return memory;
}

py::dict price(const Asked& asked) {
  std::optional<devices::Device> device;
  std::optional<perfmodel::Machine> machine;
  if (asked.device) {
    device = devices::find_device(*asked.device);
    machine = perfmodel::datasheet_machine(*device);
  }
  const program::Program program = program_of(asked, options_of(asked, device));
  const auto by_phase = perfmodel::totals_by_phase(program);
  py::dict totals = costs(perfmodel::step_totals(by_phase));
  py::dict phases;
  for (const auto& [phase, sums] : by_phase)
    phases[std::string(program::name_of(phase)).c_str()] = costs(sums);
  py::dict blocks;
  for (const auto& [block, sums] : perfmodel::totals_by_block(program)) blocks[block.c_str()] = costs(sums);
  totals["by_phase"] = phases;
  totals["by_block"] = blocks;
  totals["memory"] = memory_of(program);
  if (machine) {
    const std::vector<perfmodel::Roof> roofs = perfmodel::roofs_of(*machine, program);
    double roof_s = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (program.ops[i].phase != program::Phase::setup) roof_s += roofs[i].roof_s;
    }
    totals["roof_s"] = roof_s;
    totals["device"] = device->name;
  }
  py::dict priced;
  priced["ops"] = op_columns(program, machine);
  priced["totals"] = totals;
  return priced;
}

/// Errors become those of the package, which has the classes.
void translate(std::exception_ptr thrown) {
  const auto raise = [](const char* name, const char* message) {
    const py::object type = py::module_::import("rooflm.errors").attr(name);
    PyErr_SetObject(type.ptr(), text_of(message).ptr());
  };
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const core::UsageError& error) {
    raise("UsageError", error.what());
  } catch (const core::InputError& error) {
    raise("InputError", error.what());
  } catch (const core::OutOfMemory& error) {
    raise("OutOfMemory", error.what());
  } catch (const std::bad_alloc&) {
    raise("OutOfMemory", "out of memory");
  } catch (const core::Unavailable& error) {
    raise("Unavailable", error.what());
  } catch (const core::Error& error) {
    raise("Error", error.what());
  }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Records as tables and prices of steps; see the package rooflm.";
  py::register_exception_translator(translate);
  module.def("views", [] {
    std::vector<std::string> names;
    for (const report::ViewInfo& info : report::all_views()) names.emplace_back(info.name);
    return names;
  });
  module.def(
      "tables",
      [](const std::vector<std::filesystem::path>& paths, const std::string& view,
         std::vector<std::string> runs, std::vector<std::string> phases, std::vector<std::string> scopes,
         std::vector<std::string> ops) {
        return tables(paths, view,
                      {.runs = std::move(runs),
                       .phases = std::move(phases),
                       .scopes = std::move(scopes),
                       .ops = std::move(ops)});
      },
      py::arg("paths"), py::arg("view"), py::arg("run"), py::arg("phase"), py::arg("scope"), py::arg("op"));
  module.def("verify", &verify, py::arg("paths"));
  module.def("price", [](const py::kwargs& given) { return price(asked_of(given)); });
}
