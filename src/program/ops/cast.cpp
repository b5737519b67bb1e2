// cast: y = x in another dtype, round to nearest even. The output's dtype says which.
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_cast(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}};
}

/// No arithmetic is counted.
Cost cost_cast(const Program&, const Op&) { return {}; }

}  // namespace

const OpDef kCast{.name = "cast", .work = Work::copy, .infer = infer_cast, .cost = cost_cast};

}  // namespace rooflm::program::ops
