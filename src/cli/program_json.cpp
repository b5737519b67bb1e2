// What a program says about itself, as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "cli/program_report.h"
#include "model/flop_conventions.h"

namespace rooflm::cli {
namespace {

using Json = nlohmann::ordered_json;
using perfmodel::persistent_by_role;
using perfmodel::saved_for_backward_bytes;
using perfmodel::step_totals;
using perfmodel::Totals;
using perfmodel::totals_by_block;
using perfmodel::totals_by_phase;
using program::Op;
using program::TensorId;

/// Writes JSON on one line, piece by piece: a value of the library for each op of a program of 10,000 layers
/// takes ten times as long. Texts and numbers look as the library writes them.
class Line {
 public:
  explicit Line(std::string& text) : text_(&text) {}

  Line& raw(std::string_view json) {
    text_->append(json);
    return *this;
  }
  Line& key(std::string_view name) {
    if (text_->back() != '{') text_->push_back(',');
    return value(name).raw(":");
  }
  Line& value(std::string_view text) {
    const bool is_plain =
        std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
    if (!is_plain) return raw(Json(text).dump());
    text_->push_back('"');
    return raw(text).raw("\"");
  }
  Line& value(std::int64_t number) {
    const fmt::format_int digits(number);
    return raw({digits.data(), digits.size()});
  }
  Line& value(double number) { return raw(Json(number).dump()); }
  Line& value(bool flag) { return raw(flag ? "true" : "false"); }
  template <class List>
  Line& list(const List& items, const std::invocable<std::size_t> auto& write) {
    text_->push_back('[');
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text_->push_back(',');
      write(i);
    }
    return raw("]");
  }
  template <class List>
  Line& numbers(const List& items) {
    return list(items, [&](std::size_t i) { value(std::int64_t{items[i]}); });
  }

 private:
  std::string* text_;
};

void write_tensor(Line& line, const PlannedProgram& planned, TensorId id, std::int64_t element_offset) {
  const program::Tensor& tensor = planned.program.tensor(id);
  line.raw("{").key("name").value(tensor.name);
  line.key("shape").numbers(tensor.shape.dims());
  line.key("dtype").value(core::name_of(tensor.dtype));
  line.key("role").value(program::name_of(tensor.role));
  line.key("bytes").value(tensor.bytes());
  if (element_offset != 0) line.key("element_offset").value(element_offset);
  if (!program::is_persistent(tensor.role)) {
    const auto index = static_cast<std::size_t>(id);
    line.key("first").value(std::int64_t{planned.plan.lifetimes[index].first});
    line.key("last").value(std::int64_t{planned.plan.lifetimes[index].last});
    line.key("offset").value(planned.plan.offsets[index]);
  }
  line.raw("}");
}

/// Operands in order; an optional one that is not there is null.
void write_operands(Line& line, const PlannedProgram& planned, const std::vector<TensorId>& ids,
                    const std::vector<std::int64_t>& offsets) {
  line.list(ids, [&](std::size_t i) {
    if (ids[i] == program::kNone) {
      line.raw("null");
    } else {
      write_tensor(line, planned, ids[i], i < offsets.size() ? offsets[i] : 0);
    }
  });
}

template <class Put>
void for_costs(const program::Cost& cost, Put&& put) {
  put("matmul_flop", cost.matmul_flop);
  put("elementwise_flop", cost.elementwise_flop);
  put("bytes_read", cost.bytes_read);
  put("bytes_written", cost.bytes_written);
  put("launches", cost.launches);
}

void write_kernel(Line& line, const backends::KernelInfo* kernel) {
  if (kernel == nullptr) {
    for (const char* name : {"kernel", "library", "variant", "workspace_bytes"}) line.key(name).raw("null");
    return;
  }
  line.key("kernel").value(kernel->name).key("library").value(kernel->library);
  line.key("variant").value(kernel->variant).key("workspace_bytes").value(kernel->workspace_bytes);
}

void write_op(Line& line, const PlannedProgram& planned, std::size_t index, Kernels kernels) {
  const Op& op = planned.program.ops[index];
  line.raw("{").key("index").value(static_cast<std::int64_t>(index));
  line.key("op").value(op.def->name).key("scope").value(op.scope);
  line.key("phase").value(program::name_of(op.phase));
  line.key("micro_batch").value(std::int64_t{op.micro_batch}).key("recomputed").value(op.recomputed);
  line.key("lane").value(program::name_of(op.lane)).key("waits").numbers(op.waits);
  line.key("attributes").raw("{");
  for (const auto& entry : op.attrs.entries()) {
    line.key(entry.first);
    std::visit([&line](auto value) { line.value(value); }, entry.second);
  }
  line.raw("}").key("inputs");
  write_operands(line, planned, op.inputs, op.input_offset);
  line.key("outputs");
  write_operands(line, planned, op.outputs, op.output_offset);
  for_costs(program::cost_of(planned.program, op),
            [&](const char* name, std::int64_t value) { line.key(name).value(value); });
  const bool is_known = !kernels.empty() && !kernels[index].name.empty();
  write_kernel(line, is_known ? &kernels[index] : nullptr);
  line.raw("}");
}

Json totals_json(const Totals& totals) {
  Json json = {{"ops", totals.ops}};
  for_costs(totals.cost, [&](const char* name, std::int64_t value) { json[name] = value; });
  json["flop"] = totals.cost.matmul_flop + totals.cost.elementwise_flop;
  json["bytes"] = totals.cost.bytes_read + totals.cost.bytes_written;
  return json;
}

Json memory_json(const PlannedProgram& planned) {
  Json by_role = Json::object();
  std::int64_t sum = 0;
  for (const auto& [role, bytes] : persistent_by_role(planned.program)) {
    by_role[std::string(program::name_of(role))] = bytes;
    sum += bytes;
  }
  return {{"persistent_bytes", sum},
          {"persistent_by_role", std::move(by_role)},
          {"saved_for_backward_bytes", saved_for_backward_bytes(planned)},
          {"peak_live_bytes", planned.plan.peak_live_bytes},
          {"unshared_peak_bytes", planned.plan.unshared_peak_bytes},
          {"arena_bytes", planned.plan.arena_bytes}};
}

}  // namespace

void program_json(const PlannedProgram& planned, std::int64_t seq, std::string_view scope, bool totals_only,
                  Kernels kernels, const std::function<void(std::string_view)>& write) {
  const auto by_phase = totals_by_phase(planned.program);
  Json totals = totals_json(step_totals(by_phase));
  totals["by_phase"] = Json::object();
  for (const auto& [phase, sums] : by_phase) {
    totals["by_phase"][std::string(program::name_of(phase))] = totals_json(sums);
  }
  totals["by_block"] = Json::object();
  for (const auto& [block, sums] : totals_by_block(planned.program)) {
    totals["by_block"][block] = totals_json(sums);
  }
  totals["memory"] = memory_json(planned);
  totals["params"] = model::parameter_count(planned.config);
  totals["active_params"] = model::active_parameter_count(planned.config);
  totals["padding"] = model::padding_count(planned.config);
  totals["params_by_block"] = Json::object();
  for (const auto& [block, count] : model::parameters_by_block(planned.config))
    totals["params_by_block"][block] = count;
  for (const model::FlopConvention& each : model::flop_conventions(planned.config, seq)) {
    totals["flop_per_token"][std::string(each.name)] = {
        {"training", each.training}, {"forward", each.forward}, {"frozen", each.frozen}};
  }
  if (!planned.config.other_parts.empty()) totals["left_out"] = planned.config.other_parts;
  if (!planned.config.stored_as.empty()) totals["stored_as"] = planned.config.stored_as;

  std::string text = "{";
  if (!totals_only) {
    text += "\"ops\": [";
    std::string_view separator = "\n ";
    for (std::size_t i = 0; i < planned.program.ops.size(); ++i) {
      if (!planned.program.ops[i].scope.starts_with(scope)) continue;
      text += std::exchange(separator, ",\n ");
      Line line(text);
      write_op(line, planned, i, kernels);
      write(text);
      text.clear();
    }
    text += "\n],\n";
  }
  write(text + "\"totals\": " + totals.dump(1) + "}\n");
}

}  // namespace rooflm::cli
