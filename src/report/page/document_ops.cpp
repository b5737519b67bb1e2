// The ops of a run and the tree of their scopes, as parts of the document.
#include "report/model/scope_tree.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"

namespace rooflm::report {
namespace {

struct PricedOp {
  const TimedOp* timed = nullptr;
  WorkFigures figures{};
  [[nodiscard]] const record::Op& op() const { return timed->op; }
  [[nodiscard]] const record::OpTime* time() const { return timed->time ? &*timed->time : nullptr; }
};

const TypedColumns<PricedOp>& op_columns() {
  static const TypedColumns<PricedOp> columns = [] {
    TypedColumns<PricedOp> all = {};
    all.add({{"op", &record::Op::op},
             {"kind", &record::Op::kind},
             {"class", &record::Op::op_class},
             {"kernel", &record::Op::kernel},
             {"name", &record::Op::name},
             {"phase", &record::Op::phase},
             {"scope", &record::Op::scope},
             {"dtype", &record::Op::dtype},
             {"shapes", &record::Op::shapes},
             {"recomputed", [](const record::Op& op) { return op.recomputed ? 1 : 0; }},
             {"matmul_flop", &record::Op::matmul_flop},
             {"elementwise_flop", &record::Op::elementwise_flop},
             {"bytes", [](const record::Op& op) { return op.bytes_read + op.bytes_written; }},
             {"launches", &record::Op::launches}},
            &PricedOp::op);
    all.add({"instances", [](const PricedOp& one) { return one.time() ? one.time()->instances : 0; }});
    all.add({{"device_s", &record::OpTime::device_s}}, &PricedOp::time);
    all.add({{"wall_s", &TimedOp::shown_wall_s}}, &PricedOp::timed);
    all.add({{"min_s", &record::OpTime::min_s},
             {"max_s", &record::OpTime::max_s},
             {"std_s", &record::OpTime::std_s}},
            &PricedOp::time);
    all.add({{"roof_s", &TimedOp::shown_roof_s}, {"bound", &TimedOp::bound}}, &PricedOp::timed);
    all.add({{"flop", &WorkFigures::flop},
             {"intensity", &WorkFigures::intensity},
             {"flop_per_s", &WorkFigures::flop_per_s},
             {"byte_per_s", &WorkFigures::byte_per_s},
             {"step_share", &WorkFigures::step_share},
             {"roof_share", &WorkFigures::roof_share},
             {"gain_s", &WorkFigures::gain_s}},
            &PricedOp::figures);
    return all;
  }();
  return columns;
}

const TypedColumns<ScopeNode>& scope_columns() {
  static const TypedColumns<ScopeNode> columns = {
      {"parent", &ScopeNode::parent},
      {"name", &ScopeNode::name},
      {"ops", &ScopeNode::ops},
      {"flop", [](const ScopeNode& node) { return node.matmul_flop + node.elementwise_flop; }},
      {"bytes", &ScopeNode::bytes},
      {"device_s", &ScopeNode::device_s},
      {"wall_s", &ScopeNode::wall_s}};
  return columns;
}

}  // namespace

Json json_ops(const RunData& run) {
  const auto step_s = phase_median(run, kStep);
  std::vector<PricedOp> ops;
  for (const TimedOp& timed : run.ops) {
    if (timed.op.phase != kSetup) ops.push_back({.timed = &timed, .figures = work_figures(timed, step_s)});
  }
  return json_arrays(op_columns(), ops);
}

Json json_scopes(const RunData& run, bool merge_layers) {
  return json_arrays(scope_columns(), scope_tree(run, merge_layers));
}

}  // namespace rooflm::report
