// The ops of a run and the tree of their scopes, as parts of the document.
#include "report/model/scope_tree.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"

namespace rooflm::report {
namespace {

void push_texts(Columns& columns, Names& names, const TimedOp& timed) {
  const record::Op& op = timed.op;
  columns.push("kind", names.index(op.kind));
  columns.push("class", names.index(op.op_class));
  columns.push("kernel", names.index(op.kernel));
  columns.push("name", names.index(op.name));
  columns.push("phase", names.index(op.phase));
  columns.push("scope", names.index(op.scope));
  columns.push("dtype", names.index(op.dtype));
  columns.push("shapes", names.index(op.shapes));
  columns.push("bound", names.index(timed.bound));
}

void push_times(Columns& columns, const TimedOp& timed) {
  const auto& time = timed.time;
  columns.push("instances", time ? time->instances : 0);
  columns.push("device_s", time ? json_number(time->device_s) : Json());
  columns.push("wall_s", json_number(timed.shown_wall_s()));
  columns.push("min_s", time ? json_number(time->min_s) : Json());
  columns.push("max_s", time ? json_number(time->max_s) : Json());
  columns.push("std_s", time ? json_number(time->std_s) : Json());
}

void push_figures(Columns& columns, const WorkFigures& figures) {
  columns.push("flop", figures.flop);
  columns.push("intensity", json_number(figures.intensity));
  columns.push("flop_per_s", json_number(figures.flop_per_s));
  columns.push("byte_per_s", json_number(figures.byte_per_s));
  columns.push("step_share", json_number(figures.step_share));
  columns.push("roof_share", json_number(figures.roof_share));
  columns.push("gain_s", json_number(figures.gain_s));
}

}  // namespace

Json json_ops(const RunData& run) {
  const auto step_s = phase_median(run, kStep);
  Names names;
  Columns columns({"op",         "kind",       "class",      "kernel",     "name",        "phase",
                   "scope",      "dtype",      "shapes",     "recomputed", "matmul_flop", "elementwise_flop",
                   "bytes",      "launches",   "instances",  "device_s",   "wall_s",      "min_s",
                   "max_s",      "std_s",      "roof_s",     "bound",      "flop",        "intensity",
                   "flop_per_s", "byte_per_s", "step_share", "roof_share", "gain_s"});
  for (const TimedOp& timed : run.ops) {
    const record::Op& op = timed.op;
    if (op.phase == "setup") continue;
    columns.push("op", op.op);
    push_texts(columns, names, timed);
    columns.push("recomputed", op.recomputed ? 1 : 0);
    columns.push("matmul_flop", op.matmul_flop);
    columns.push("elementwise_flop", op.elementwise_flop);
    columns.push("bytes", op.bytes_read + op.bytes_written);
    columns.push("launches", op.launches);
    push_times(columns, timed);
    columns.push("roof_s", json_number(timed.roof_s));
    push_figures(columns, work_figures(timed, step_s));
  }
  return std::move(columns).json(&names);
}

Json json_scopes(const RunData& run, bool merge_layers) {
  Names names;
  Columns columns({"parent", "name", "ops", "flop", "bytes", "device_s", "wall_s"});
  for (const ScopeNode& node : scope_tree(run, merge_layers)) {
    columns.push("parent", node.parent);
    columns.push("name", names.index(node.name));
    columns.push("ops", node.ops);
    columns.push("flop", node.matmul_flop + node.elementwise_flop);
    columns.push("bytes", node.bytes);
    columns.push("device_s", json_number(node.device_s));
    columns.push("wall_s", json_number(node.wall_s));
  }
  return std::move(columns).json(&names);
}

}  // namespace rooflm::report
