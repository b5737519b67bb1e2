// cast: y = x in the dtype of the output, rounded to nearest even.
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_cast(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}};
}

/// Conversions do not count as FLOP.
Cost cost_cast(const Program&, const Op&) { return {}; }

}  // namespace

const OpDef kCast{.name = "cast", .work = Work::copy, .infer = infer_cast, .cost = cost_cast};

}  // namespace rooflm::program::ops
