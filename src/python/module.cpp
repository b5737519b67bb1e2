// rooflm._native: records as tables and prices of steps, in the process of Python. The package beside it
// gives them shape and names errors.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
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
#include "core/options.h"
#include "devices/device.h"
#include "model/huggingface.h"
#include "perfmodel/device_fit.h"
#include "perfmodel/program_totals.h"
#include "perfmodel/roofline.h"
#include "record/options.h"
#include "record/reader.h"
#include "report/model/filter.h"
#include "report/model/run_data.h"
#include "report/verify/verify.h"
#include "report/views/views.h"

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

/// What `price` is asked for. Of a step that is split over ranks, the program of the first one is priced.
struct Asked {
  std::string model;
  std::optional<std::string> device;
  std::int64_t batch = 0, seq = 0;
  compile::RunPhase phase = compile::RunPhase::step;
  compile::StepOptions step;
  model::Overrides sizes;
};
template <core::MaybeConst<Asked> T, class Visit>
void visit_options(T& asked, const Visit& visit) {
  visit("model", asked.model);
  visit("batch", asked.batch);
  visit("seq", asked.seq);
  visit("phase", asked.phase);
  visit_options(asked.step, visit);
  visit_options(asked.sizes, visit);
}

/// A keyword of Python as the value of a field.
record::Config::Value value_of(const record::Field& field, const py::handle& given) {
  try {
    if (field.type == record::FieldType::integer) return given.cast<std::int64_t>();
    if (field.type == record::FieldType::number) return given.cast<double>();
    if (field.type == record::FieldType::flag) return given.cast<bool>();
    return given.cast<std::string>();
  } catch (const py::cast_error&) {
    throw core::UsageError(
        fmt::format("{} is not of its type: {}", field.key, py::repr(given).cast<std::string>()));
  }
}

/// From keywords of Python, the keys of records; None is as good as absent.
Asked asked_of(const py::kwargs& given) {
  Asked asked;
  std::vector<std::string> known = {"device"};
  for (const std::string_view key : record::keys_of(asked)) known.emplace_back(key);
  record::Config config;
  for (const auto& [keyword, value] : given) {
    const auto key = keyword.cast<std::string>();
    if (std::ranges::find(known, key) == known.end())
      throw core::UsageError(core::unknown_name("option", key, known));
    if (value.is_none()) continue;
    config.set(key, value_of(*record::find_field(key), value));
    if (config.text(key).empty()) throw core::UsageError(fmt::format("{} is empty", key));
  }
  record::read_options(config, asked);
  if (config.find("device") != nullptr) asked.device = config.text("device");
  if (config.find("attention") == nullptr && asked.step.sharding.context == 1)
    asked.step.attention = compile::default_attention(asked.step.engine);
  asked.sizes.seq = asked.seq;
  return asked;
}

model::ModelConfig config_of(const Asked& asked) {
  const auto& presets = model::preset_names();
  const bool is_preset = std::ranges::find(presets, asked.model) != presets.end();
  const bool is_directory = !is_preset && std::filesystem::is_directory(asked.model);
  model::ModelConfig config = is_directory ? model::read_config(asked.model) : model::preset(asked.model);
  return model::with_overrides(std::move(config), asked.sizes);
}

/// As lab::make_points.
void check(const Asked& asked, const model::ModelConfig& config) {
  constexpr std::int64_t kMostLayers = 100'000;
  const compile::StepOptions& step = asked.step;
  if (asked.phase != compile::RunPhase::step && (step.micro_batches > 1 || step.sharding.ranks() > 1))
    throw core::UsageError(fmt::format("phase {} has no gradients: leave out grad_accum, dp, cp, tp and pp",
                                       name_of(asked.phase)));
  if (config.layers > kMostLayers / step.micro_batches) {
    throw core::UsageError(fmt::format("{} layers times grad_accum {}: at most {} layers can be priced",
                                       config.layers, step.micro_batches, kMostLayers));
  }
  if (step.sharding.context > 1 && step.attention != passes::AttentionKind::flash)
    throw core::UsageError(fmt::format("cp {} requires attention flash, not {}", step.sharding.context,
                                       name_of(step.attention)));
  compile::check(step.sharding, config, asked.batch, asked.seq, step.micro_batches);
}

program::Program program_of(const Asked& asked, const std::optional<devices::Device>& device) {
  const model::ModelConfig config = config_of(asked);
  check(asked, config);
  if (const std::string_view dtype = compile::dtype_name(asked.step); device && !device->computes(dtype))
    throw core::Unavailable(fmt::format("{} does not compute in {}", device->name, dtype));
  compile::StepOptions options = asked.step;
  options.adapters = passes::find_adapters(config, options.lora);
  perfmodel::fit_to_device(options, device ? *device : devices::device_of_kind(devices::Kind::cpu));
  return compile::program_of(asked.phase, config, asked.batch, asked.seq / options.sharding.context, options);
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
  const program::Program program = program_of(asked, device);
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
