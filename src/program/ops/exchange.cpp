// Rows between ranks that have some of the experts each (expert parallelism; Lepikhin et al., 2020). A rank
// has R rows of its own tokens, sorted by expert, and rank i of N the weights of experts [i E / N, (i + 1) E
// / N). Sizes are known before the step: a rank receives the rows of all ranks at worst.
//   exchange_rows (rows [R, C], counts [N, E + 1]) -> received [N R, C], offsets [E / N + 1]: the rows of
//   this
//     rank's experts, sorted by expert and then by rank; what follows the last offset is undefined.
//   return_rows   (received [N R, C], counts) -> rows [R, C]: its inverse.
// counts are the offsets that `dispatch` made on each rank (an all_gather of them). Each of the two is the
// other's gradient. Attributes: group, parts, index as of all collectives; of plans also room and own_rows,
// the rows of `received` and of `rows` where the one has no room for those of all ranks.
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

/// Rows [.., C] and counts [N, E + 1], of which N divides E.
void expect_counts(const Program& p, const Op& op) {
  const Shape& rows = p.shape(op.inputs.at(0));
  const Shape& counts = p.shape(op.inputs.at(1));
  const std::int64_t ranks = op.attrs.integer("parts");
  expect(rows.rank() == 2 && counts.rank() == 2 && counts[0] == ranks && (counts[1] - 1) % ranks == 0 &&
             p.tensor(op.inputs[1]).dtype == core::DType::i32,
         op,
         [&] { return fmt::format("counts {} of rows {} over {} ranks", counts.str(), rows.str(), ranks); });
}

Tensor rows_like(const Tensor& tensor, std::int64_t rows) {
  return {.shape = tensor.shape.with(0, rows), .role = tensor.role, .full_precision = tensor.full_precision};
}

std::vector<Tensor> infer_exchange_rows(const Program& p, const Op& op) {
  expect_counts(p, op);
  const Tensor& rows = p.tensor(op.inputs[0]);
  const std::int64_t ranks = op.attrs.integer("parts");
  const std::int64_t experts = (p.shape(op.inputs[1])[1] - 1) / ranks;
  const std::int64_t room = op.attrs.has("room") ? op.attrs.integer("room") : ranks * rows.shape[0];
  return {rows_like(rows, room), {.shape = {experts + 1}, .dtype = core::DType::i32}};
}

std::vector<Tensor> infer_return_rows(const Program& p, const Op& op) {
  expect_counts(p, op);
  const Tensor& received = p.tensor(op.inputs[0]);
  return {rows_like(received, op.attrs.has("own_rows") ? op.attrs.integer("own_rows")
                                                       : received.shape[0] / op.attrs.integer("parts"))};
}

/// As many rows arrive as are sent, where experts have equally many.
Cost cost_exchange(const Program& p, const Op& op) {
  const std::int64_t bytes = payload_bytes(p, op);
  return {.bytes_read = bytes, .bytes_written = bytes};
}

void gradient_exchange_rows(GradientContext& g) {
  Attributes attrs = g.op().attrs;
  attrs.set("own_rows", g.program().shape(g.input(0))[0]);
  g.propagate(0, g.emit(kReturnRows, {g.gradient(0), g.input(1)}, attrs).at(0));
}

void gradient_return_rows(GradientContext& g) {
  Attributes attrs = g.op().attrs;
  attrs.set("room", g.program().shape(g.input(0))[0]);
  g.propagate(0, g.emit(kExchangeRows, {g.gradient(0), g.input(1)}, attrs).at(0));
}

}  // namespace

const OpDef kExchangeRows{.name = "exchange_rows",
                          .work = Work::collective,
                          .infer = infer_exchange_rows,
                          .cost = cost_exchange,
                          .gradient = gradient_exchange_rows};
const OpDef kReturnRows{.name = "return_rows",
                        .work = Work::collective,
                        .infer = infer_return_rows,
                        .cost = cost_exchange,
                        .gradient = gradient_return_rows};

}  // namespace rooflm::program::ops
