// Kernels of the collectives, for backends that use host memory.
#include "backends/comm/kernels.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::backends::comm {
namespace {

using program::Op;
using program::Program;
using program::TensorId;
using Rank = std::shared_ptr<Communicator>;

/// The tensors of a collective; `whole` is the side (inputs or outputs) where they are whole. Addresses come
/// per call.
std::vector<Transfer> transfers_of(const Program& program, const Op& op, const std::vector<TensorId>& whole) {
  const std::int64_t unit = op.attrs.has("unit") ? op.attrs.integer("unit") : 1;
  std::vector<Transfer> transfers;
  transfers.reserve(whole.size());
  for (const TensorId id : whole) {
    const program::Tensor& tensor = program.tensor(id);
    transfers.push_back({.dtype = tensor.dtype, .elements = tensor.shape.numel(), .unit = unit});
  }
  return transfers;
}

/// A kernel that calls run(transfers).
template <class Run>
Kernel with_addresses(std::vector<Transfer> transfers, Run run) {
  return {[transfers = std::move(transfers), run = std::move(run)](const KernelArgs& args) mutable {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      transfers[i].from = args.in[i];
      transfers[i].to = args.out[i];
    }
    run(transfers);
  }};
}

using Transfers = Communicator::Transfers;

Kernel make_all_reduce(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.inputs),
                        [rank, group = program::group_of(op)](Transfers t) { rank->all_reduce(group, t); });
}

Kernel make_all_gather(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.outputs),
                        [rank, group = program::group_of(op)](Transfers t) { rank->all_gather(group, t); });
}

Kernel make_reduce_scatter(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.inputs),
                        [rank, group = program::group_of(op), accumulate = op.attrs.flag("accumulate")](
                            Transfers t) { rank->reduce_scatter(group, t, accumulate); });
}

Kernel make_pass_on(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.inputs),
                        [rank, group = program::group_of(op)](Transfers t) { rank->pass_on(group, t); });
}

Message message_of(const Op& op) {
  return {.group = program::group_of(op),
          .peer = static_cast<int>(op.attrs.integer("peer")),
          .channel = op.attrs.integer("channel"),
          .micro_batch = op.micro_batch};
}

Kernel make_send(const Rank& rank, const Program& program, const Op& op) {
  return {[rank, message = message_of(op), bytes = program.tensor(op.inputs.at(0)).bytes()](
              const KernelArgs& args) { rank->send(message, args.in[0], bytes); }};
}

Kernel make_receive(const Rank& rank, const Program& program, const Op& op) {
  return {[rank, message = message_of(op), bytes = program.tensor(op.outputs.at(0)).bytes()](
              const KernelArgs& args) { rank->receive(message, args.out[0], bytes); }};
}

/// Messages hold copies, so nothing has to be made visible: it only waits for all.
Kernel make_barrier(const Rank& rank, const Program& /*program*/, const Op& op) {
  return {[rank, group = program::group_of(op)](const KernelArgs& /*args*/) {
    float arrived = 0;
    const Transfer transfer{.from = &arrived, .to = &arrived, .elements = 1};
    rank->all_reduce(group, {&transfer, 1});
  }};
}

using Make = Kernel (*)(const Rank&, const Program&, const Op&);

KernelRow row_of(const Rank& rank, const program::OpDef& def, Make make) {
  return {&def, [rank, make](const Program& program, const Op& op) {
            Kernel kernel = make(rank, program, op);
            kernel.info.name = "comm::" + std::string(op.def->name);
            kernel.run = [rank, name = fmt::format("{} in {}", op.def->name, op.scope),
                          run = std::move(kernel.run)](const KernelArgs& args) {
              rank->begin(name);
              run(args);
            };
            return kernel;
          }};
}

}  // namespace

std::vector<KernelRow> kernels_of(const std::shared_ptr<Communicator>& rank) {
  namespace ops = program::ops;
  return {row_of(rank, ops::kAllReduce, make_all_reduce),
          row_of(rank, ops::kAllGather, make_all_gather),
          row_of(rank, ops::kReduceScatter, make_reduce_scatter),
          row_of(rank, ops::kSend, make_send),
          row_of(rank, ops::kReceive, make_receive),
          row_of(rank, ops::kPassOn, make_pass_on),
          row_of(rank, ops::kBarrier, make_barrier)};
}

}  // namespace rooflm::backends::comm
