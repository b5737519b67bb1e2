// The operations view: what each block computes, as formula and number, and on which side of the ridge it
// lies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/model/work_formula.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// FLOP per byte from which on matmuls of the run's dtype are no longer bound by memory: the rate
/// over the bandwidth of the outermost level, both as measured.
struct Ridge {
  std::string rate, memory;  ///< "matmul fp32", "DRAM"
  double flop_per_byte = 0;
};

std::optional<Ridge> ridge_of(const RunData& run) {
  const RoofLines roofs = roof_lines(run);
  const auto rate = std::ranges::find(roofs.rates, "matmul " + run.setting("dtype"), &RoofLine::name);
  if (rate == roofs.rates.end() || roofs.bandwidths.empty() || roofs.bandwidths.back().value <= 0)
    return std::nullopt;
  const RoofLine& memory = roofs.bandwidths.back();
  return Ridge{.rate = rate->name, .memory = memory.name, .flop_per_byte = rate->value / memory.value};
}

/// Elements of the activations, or of their gradients, that each part's ops write.
std::map<std::pair<std::string, std::string>, std::int64_t> elements_by_part(const RunData& run) {
  const auto bytes_each = [](const std::string& dtype) {
    return dtype == "bf16" || dtype == "fp16" ? 2 : dtype.starts_with("fp8") ? 1 : 4;
  };
  std::map<std::pair<std::string, std::string>, std::int64_t> elements;
  for (const record::Tensor& tensor : run.tensors) {
    const TimedOp* maker = run.find_op(tensor.first_op);
    if (maker == nullptr || !tensor.role.starts_with("activation")) continue;
    elements[{maker->op.phase, maker->part}] += tensor.bytes / bytes_each(tensor.dtype);
  }
  return elements;
}

std::set<std::string> layered_parts(const RunData& run) {
  std::set<std::string> parts;
  for (const TimedOp& timed : run.ops) {
    if (layer_of(timed.op.scope)) parts.insert(timed.part);
  }
  return parts;
}

/// What a part of the step computes.
struct Operations : Group {
  std::optional<std::int64_t> elements{};
  std::string activations{}, operations{};  ///< formulas, "" where none is known
  std::optional<double> ridge{};

  [[nodiscard]] Cell side() const {
    const auto intensity = work.intensity();
    return ridge && intensity ? Cell(*intensity < *ridge ? "memory" : "compute") : Cell();
  }
};

const TypedColumns<Operations>& operation_columns() {
  static const TypedColumns<Operations> columns = {
      {"phase", "phase", &Operations::phase},
      {"part", "block", &Operations::name},
      {"elements", "elements", &Operations::elements, Show::si},
      {"activations", "as", [](const Operations& one) { return known_text(one.activations); }},
      {"operations", "operations", [](const Operations& one) { return known_text(one.operations); }},
      {"flop", "FLOP", [](const Operations& one) { return one.work.flop(); }, Show::si, "flop"},
      {"bytes", "bytes", [](const Operations& one) { return one.work.bytes; }, Show::bytes},
      {"intensity", "FLOP/B", [](const Operations& one) { return one.work.intensity(); }, Show::fixed2,
       "flop/byte"},
      {"ridge", "ridge", &Operations::ridge, Show::fixed2, "flop/byte"},
      {"side", "by the ridge", &Operations::side},
      {"bound", "bound by", [](const Operations& one) { return one.work.bound; }}};
  return columns;
}

void add_operations(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const auto ridge = ridge_of(run);
  const auto elements = elements_by_part(run);
  const std::set<std::string> layered = layered_parts(run);
  std::vector<Operations> shown;
  for (const Group& part : parts_of(run)) {
    if (part.work.flop() + static_cast<double>(part.work.bytes) == 0) continue;
    const bool is_layered = layered.contains(part.name);
    Operations& one = shown.emplace_back(Operations{{part}});
    if (const auto found = elements.find({part.phase, part.name}); found != elements.end()) {
      one.elements = found->second;
      one.activations = element_formula(run, part, found->second, is_layered);
    }
    one.operations = flop_formula(run, part, is_layered);
    if (ridge) one.ridge = ridge->flop_per_byte;
  }
  Table table = operation_columns().table(shown);
  if (ridge) {
    table.notes.push_back(fmt::format("ridge: {} / {}, as measured here", ridge->rate, ridge->memory));
  } else {
    table.notes.emplace_back("ridge: the record has no rate of matmuls in the run's dtype, or no bandwidth");
  }
  view.add("operations", "Operations of each block", std::move(table));
}

constexpr std::array kOperationsViews = {
    ViewDef{
        .place = 61,
        .info =
            {.name = "operations",
             .title = "Operations",
             .note =
                 "What each block computes: B batch, T tokens, C width, F feed-forward width, H heads, K "
                 "key/value heads, D head size, V vocabulary, N parameters, G micro-batches; a multiply-add "
                 "is 2. Formulas give exactly the FLOP next to them, matmuls first; - if none is known. "
                 "elements: activations that the block writes. by the ridge: intensity against the ridge "
                 "point; bound by: the roof, which knows that caches keep what was just written.",
             .needs = "ops (rooflm profile)"},
        .of_run = add_operations,
        .columns = [] { return columns_of(operation_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_operations() { return kOperationsViews; }

}  // namespace rooflm::report
