// A program as rows of a run record.
#include "trace/program_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/op_view.h"
#include "program/groups.h"

namespace rooflm::trace {
namespace {

using program::Op;
using program::Program;
using program::TensorId;

/// "[256,768] [768,2304]": the first few operands; a multi-tensor update has hundreds.
std::string shapes_of(const Program& program, const std::vector<TensorId>& ids) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> texts;
  std::size_t count = 0;
  for (const TensorId id : ids) {
    if (id == program::kNone) continue;
    if (count++ < kMost) texts.push_back(fmt::format("[{}]", fmt::join(program.shape(id).dims(), ",")));
  }
  if (count > kMost) texts.push_back(fmt::format("... ({} tensors)", count));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string first_output_name(const Program& program, const Op& op) {
  for (const TensorId id : op.outputs) {
    if (id != program::kNone) return program.tensor(id).name;
  }
  return {};
}

}  // namespace

std::vector<record::Op> op_rows(const Program& program, std::span<const backends::KernelInfo> kernels) {
  const backends::KernelInfo unknown{.library = {}, .launches = std::nullopt};
  std::vector<record::Op> rows;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.phase == program::Phase::setup) continue;
    const program::Cost cost = program::cost_of(program, op);
    const backends::KernelInfo& kernel = kernels.empty() ? unknown : kernels[i];
    // The group, for collectives of several ranks.
    const bool is_together = program::is_collective(op) && !program::is_message(op);
    const std::string group = is_together ? std::string(program::name_of(program::group_of(op))) : "";
    rows.push_back({.op = static_cast<std::int64_t>(i),
                    .kind = std::string(op.def->name),
                    .op_class = std::string(program::name_of(op.def->work)),
                    .kernel = kernel.name,
                    .name = first_output_name(program, op),
                    .phase = std::string(program::name_of(op.phase)),
                    .scope = op.scope,
                    .dtype = std::string(core::name_of(backends::compute_dtype(program, op))),
                    .shapes = shapes_of(program, op.inputs) + " -> " + shapes_of(program, op.outputs),
                    .micro_batch = op.micro_batch,
                    .recomputed = op.recomputed,
                    .matmul_flop = cost.matmul_flop,
                    .elementwise_flop = cost.elementwise_flop,
                    .bytes_read = cost.bytes_read,
                    .bytes_written = cost.bytes_written,
                    .launches = kernel.launches.value_or(cost.launches),
                    .library = kernel.library,
                    .variant = kernel.variant.empty() ? group : kernel.variant,
                    .workspace_bytes = kernel.workspace_bytes,
                    .lane = std::string(program::name_of(op.lane))});
  }
  return rows;
}

std::vector<record::Tensor> tensor_rows(const Program& program, const passes::MemoryPlan& plan,
                                        bool has_arena) {
  std::vector<record::Tensor> rows;
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const program::Tensor& tensor = program.tensors[id];
    const bool persistent = program::is_persistent(tensor.role);
    if (!persistent && plan.lifetimes[id].first < 0) continue;
    record::Tensor row{.tensor = static_cast<std::int64_t>(id),
                       .name = tensor.name,
                       .role = std::string(program::name_of(tensor.role)),
                       .dtype = std::string(core::name_of(tensor.dtype)),
                       .shape = fmt::format("[{}]", fmt::join(tensor.shape.dims(), ",")),
                       .bytes = tensor.own_bytes()};
    if (!persistent) {
      row.first_op = plan.lifetimes[id].first;
      row.last_op = plan.lifetimes[id].last;
      if (has_arena && plan.offsets[id] >= 0) row.offset = plan.offsets[id];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace rooflm::trace
