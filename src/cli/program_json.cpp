// What a program says about itself, as JSON.
#include <nlohmann/json.hpp>

#include "cli/program_report.h"

namespace rooflm::cli {
namespace {

using Json = nlohmann::ordered_json;
using lab::persistent_by_role;
using lab::saved_for_backward_bytes;
using lab::step_totals;
using lab::Totals;
using lab::totals_by_block;
using lab::totals_by_phase;
using program::Op;
using program::TensorId;

Json tensor_json(const PlannedProgram& planned, TensorId id, std::int64_t element_offset) {
  const program::Tensor& tensor = planned.program.tensor(id);
  Json json = {{"name", tensor.name},
               {"shape", tensor.shape.dims()},
               {"dtype", core::name_of(tensor.dtype)},
               {"role", program::name_of(tensor.role)},
               {"bytes", tensor.bytes()}};
  if (element_offset != 0) json["element_offset"] = element_offset;
  if (program::is_persistent(tensor.role)) return json;
  const auto index = static_cast<std::size_t>(id);
  json["first"] = planned.plan.lifetimes[index].first;
  json["last"] = planned.plan.lifetimes[index].last;
  json["offset"] = planned.plan.offsets[index];
  return json;
}

/// Operands in order; an optional one that is not there is null.
Json operands_json(const PlannedProgram& planned, const std::vector<TensorId>& ids,
                   const std::vector<std::int64_t>& offsets) {
  Json json = Json::array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t offset = i < offsets.size() ? offsets[i] : 0;
    json.push_back(ids[i] == program::kNone ? Json() : tensor_json(planned, ids[i], offset));
  }
  return json;
}

void add_cost(Json& json, const program::Cost& cost) {
  json["matmul_flop"] = cost.matmul_flop;
  json["elementwise_flop"] = cost.elementwise_flop;
  json["bytes_read"] = cost.bytes_read;
  json["bytes_written"] = cost.bytes_written;
  json["launches"] = cost.launches;
}

Json op_json(const PlannedProgram& planned, std::size_t index, Kernels kernels) {
  const Op& op = planned.program.ops[index];
  Json attributes = Json::object();
  for (const auto& entry : op.attrs.entries()) {
    std::visit([&](auto typed) { attributes[std::string(entry.first)] = typed; }, entry.second);
  }
  Json json = {{"index", index},
               {"op", op.def->name},
               {"scope", op.scope},
               {"phase", program::name_of(op.phase)},
               {"micro_batch", op.micro_batch},
               {"recomputed", op.recomputed},
               {"lane", program::name_of(op.lane)},
               {"waits", op.waits},
               {"attributes", std::move(attributes)},
               {"inputs", operands_json(planned, op.inputs, op.input_offset)},
               {"outputs", operands_json(planned, op.outputs, op.output_offset)}};
  add_cost(json, program::cost_of(planned.program, op));
  const bool is_known = !kernels.empty() && !kernels[index].name.empty();
  json["kernel"] = is_known ? Json(kernels[index].name) : Json();
  json["library"] = is_known ? Json(kernels[index].library) : Json();
  json["variant"] = is_known ? Json(kernels[index].variant) : Json();
  json["workspace_bytes"] = is_known ? Json(kernels[index].workspace_bytes) : Json();
  return json;
}

Json totals_json(const Totals& totals) {
  Json json = {{"ops", totals.ops}};
  add_cost(json, totals.cost);
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

std::string program_json(const PlannedProgram& planned, std::string_view scope, bool totals_only,
                         Kernels kernels) {
  Json totals = totals_json(step_totals(planned.program));
  totals["by_phase"] = Json::object();
  for (const auto& [phase, sums] : totals_by_phase(planned.program)) {
    totals["by_phase"][std::string(program::name_of(phase))] = totals_json(sums);
  }
  totals["by_block"] = Json::object();
  for (const auto& [block, sums] : totals_by_block(planned.program)) {
    totals["by_block"][block] = totals_json(sums);
  }
  totals["memory"] = memory_json(planned);

  std::string text = "{";
  if (!totals_only) {
    text += "\"ops\": [";
    bool is_first = true;
    for (std::size_t i = 0; i < planned.program.ops.size(); ++i) {
      if (!planned.program.ops[i].scope.starts_with(scope)) continue;
      text += (is_first ? "\n " : ",\n ") + op_json(planned, i, kernels).dump();
      is_first = false;
    }
    text += "\n],\n";
  }
  return text + "\"totals\": " + totals.dump(1) + "}\n";
}

}  // namespace rooflm::cli
