// Collectives between ranks: all_reduce, all_gather, reduce_scatter, send, receive, pass_on; and two local
// ops that go with them.
//
// Attributes: group (program::Group), parts (ranks in the group), index (of this rank in it). The first three
// take a list of tensors as one call, such as all weights of a layer. Sums are taken in rank order, in fp32
// or better, so all ranks get the same bits, and reduce_scatter gives the bits of all_reduce.
//   all_reduce      y_i = sum over ranks of x_i; may be in place
//   all_gather      y_i = the parts x_i of all ranks, concatenated
//   reduce_scatter  y_i (+)= this rank's part of the sum over ranks of x_i; += with `accumulate`
// Parts are those of program::part_of with the attribute `unit`, or everything on the rank that owns a tensor
// (Shard::kOwner): an all_gather is a broadcast of it then, and a reduce_scatter a reduction to it. With the
// attribute `mapped` a sum is between barriers, and the ranks have mapped each other's memory
// (passes/sum_in_update.h).
//   send            x to the rank `peer` of the group. It is done when x may be overwritten, which may be
//                   before x has arrived
//   receive         `elements` elements sent by that rank for the same `channel` and micro-batch. Channel c
//                   leads from pipeline part c to part c + 1, channel -1 - c back
//   pass_on         a ring shift: y = x of the previous rank, while the next rank gets this rank's x
//   barrier         done when all ranks of the group have begun it: what each wrote before can be read by the
//                   others. It names the tensors concerned as inputs and outputs, and changes none
//   own_part        y = this rank's rows of x, which all ranks have
//   for_each_rank   y = x where each rank then computes something different from it: its gradient is the sum
//                   over ranks. Only the gradient does work, so finished programs have none
//                   (passes::drop_identities).
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

struct Parts {
  int parts, index;
  explicit Parts(const Attributes& attrs)
      : parts(static_cast<int>(attrs.integer("parts"))), index(static_cast<int>(attrs.integer("index"))) {}
};

void expect_place(const Op& op) {
  const Parts at(op.attrs);
  expect(at.parts > 0 && at.index >= 0 && at.index < at.parts, op,
         [&] { return fmt::format("rank {} of {}", at.index, at.parts); });
}

/// The attributes that identify the group and this rank in it.
Attributes place_of(const Attributes& attrs) {
  Attributes place{{"group", attrs.integer("group")},
                   {"parts", attrs.integer("parts")},
                   {"index", attrs.integer("index")}};
  if (attrs.has("unit")) place.set("unit", attrs.integer("unit"));
  return place;
}

Tensor like(const Tensor& tensor) {
  return {.shape = tensor.shape, .role = tensor.role, .full_precision = tensor.full_precision};
}

std::vector<Tensor> infer_all_reduce(const Program& p, const Op& op) {
  expect_place(op);
  std::vector<Tensor> outputs;
  outputs.reserve(op.inputs.size());
  for (const TensorId id : op.inputs) outputs.push_back(like(p.tensor(id)));
  return outputs;
}

/// Elements of this rank's part of a tensor with so many elements.
std::int64_t own_elements(const Op& op, std::int64_t elements, const Cut& cut) {
  const Parts at(op.attrs);
  return part_of(elements, at.parts, at.index, cut).size();
}

/// Shapes come from existing outputs if there are any; otherwise all parts are equal rows.
std::vector<Tensor> infer_all_gather(const Program& p, const Op& op) {
  expect_place(op);
  std::vector<Tensor> outputs;
  outputs.reserve(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& part = p.tensor(op.inputs[i]);
    Tensor whole = like(part);
    whole.shape = i < op.outputs.size() ? p.shape(op.outputs[i])
                                        : part.shape.with(0, part.shape[0] * op.attrs.integer("parts"));
    const Cut cut = cut_of(p, op, op.inputs[i]);
    expect(own_elements(op, whole.shape.numel(), cut) == part.shape.numel(), op, [&] {
      return fmt::format("{} is not this rank's part of {}", part.shape.str(), whole.shape.str());
    });
    outputs.push_back(std::move(whole));
  }
  return outputs;
}

std::vector<Tensor> infer_reduce_scatter(const Program& p, const Op& op) {
  expect_place(op);
  std::vector<Tensor> outputs;
  outputs.reserve(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    Tensor part = like(p.tensor(op.inputs[i]));
    // Existing outputs say whether one rank has all.
    const Cut cut = i < op.outputs.size() ? cut_of(p, op, op.outputs[i]) : Cut{op.attrs.integer("unit")};
    part.shape = {own_elements(op, part.shape.numel(), cut)};
    outputs.push_back(std::move(part));
  }
  return outputs;
}

/// parts - 1 additions per element, shared among the ranks.
Cost cost_reduction(const Program& p, const Op& op) {
  const std::int64_t parts = op.attrs.integer("parts");
  Cost cost;
  for (const TensorId id : op.inputs) {
    cost.elementwise_flop =
        core::Count(cost.elementwise_flop) + p.shape(id).numel() / parts * core::Count(parts - 1);
  }
  return cost;
}

Cost cost_transfer(const Program&, const Op&) { return {}; }

/// Each rank writes a number for each of the others, and reads one from each.
Cost cost_barrier(const Program&, const Op& op) {
  const std::int64_t bytes = (op.attrs.integer("parts") - 1) * std::int64_t{sizeof(float)};
  return {.bytes_read = bytes, .bytes_written = bytes};
}

/// The gradient of a sum of partial results is the same for each rank.
void gradient_all_reduce(GradientContext& g) { g.propagate(0, g.gradient(0)); }

void gradient_for_each_rank(GradientContext& g) {
  g.propagate(0, g.emit(kAllReduce, {g.gradient(0)}, place_of(g.op().attrs)).at(0));
}

/// With the flag `same` all ranks compute the same from the whole tensor: the gradient of a part is its rows.
void gradient_all_gather(GradientContext& g) {
  const OpDef& def = g.op().attrs.flag("same") ? kOwnPart : kReduceScatter;
  g.propagate(0, g.emit(def, {g.gradient(0)}, place_of(g.op().attrs), {g.program().shape(g.input(0))}).at(0));
}

/// Each rank has some rows of the sum, and every rank contributed to all rows: the gradient is an all_gather.
void gradient_reduce_scatter(GradientContext& g) {
  const Shape whole = g.program().shape(g.input(0));
  g.propagate(0, g.emit(kAllGather, {g.gradient(0)}, place_of(g.op().attrs), {whole}).at(0));
}

void gradient_own_part(GradientContext& g) {
  const Shape whole = g.program().shape(g.input(0));
  g.propagate(0, g.emit(kAllGather, {g.gradient(0)}, place_of(g.op().attrs), {whole}).at(0));
}

/// A send has no outputs.
std::vector<Tensor> infer_send(const Program&, const Op& op) {
  expect_place(op);
  return {};
}

std::vector<Tensor> infer_receive(const Program&, const Op& op) {
  expect_place(op);
  return {{.shape = {op.attrs.integer("elements")}}};
}

Attributes other_way(const Attributes& attrs) {
  Attributes back = place_of(attrs);
  back.set("peer", attrs.integer("peer"));
  back.set("channel", -1 - attrs.integer("channel"));
  return back;
}

/// The gradient of what was sent comes back.
void gradient_send(GradientContext& g) {
  const Shape x = g.program().shape(g.input(0));
  Attributes attrs = other_way(g.op().attrs);
  attrs.set("elements", x.numel());
  g.propagate(0, g.emit(kReceive, {}, attrs, {x}).at(0));
}

void gradient_receive(GradientContext& g) {
  g.emit_into(kSend, {g.gradient(0)}, other_way(g.op().attrs), {});
}

}  // namespace

const OpDef kAllReduce{.name = "all_reduce",
                       .work = Work::collective,
                       .infer = infer_all_reduce,
                       .cost = cost_reduction,
                       .gradient = gradient_all_reduce};
const OpDef kAllGather{.name = "all_gather",
                       .work = Work::collective,
                       .infer = infer_all_gather,
                       .cost = cost_transfer,
                       .gradient = gradient_all_gather,
                       .cheap_to_recompute = true,
                       .weights_in_compute_dtype = true};
const OpDef kReduceScatter{.name = "reduce_scatter",
                           .work = Work::collective,
                           .infer = infer_reduce_scatter,
                           .cost = cost_reduction,
                           .gradient = gradient_reduce_scatter};
const OpDef kSend{.name = "send",
                  .work = Work::collective,
                  .infer = infer_send,
                  .cost = cost_transfer,
                  .gradient = gradient_send,
                  .begins_backward = true};
const OpDef kReceive{.name = "receive",
                     .work = Work::collective,
                     .infer = infer_receive,
                     .cost = cost_transfer,
                     .gradient = gradient_receive};
const OpDef kPassOn{
    .name = "pass_on", .work = Work::collective, .infer = infer_all_reduce, .cost = cost_transfer};
const OpDef kBarrier{
    .name = "barrier", .work = Work::collective, .infer = infer_all_reduce, .cost = cost_barrier};
const OpDef kOwnPart{.name = "own_part",
                     .work = Work::copy,
                     .infer = infer_reduce_scatter,
                     .cost = cost_transfer,
                     .gradient = gradient_own_part};
const OpDef kForEachRank{.name = "for_each_rank",
                         .work = Work::copy,
                         .infer = infer_all_reduce,
                         .cost = cost_transfer,
                         .gradient = gradient_for_each_rank};

}  // namespace rooflm::program::ops
