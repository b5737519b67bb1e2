// Collectives of programs, bound to NCCL.
#include "backends/cuda/collectives/nccl_rows.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels/elementwise.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using program::Op;
using program::Program;
using program::TensorId;
using Groups = std::shared_ptr<NcclGroups>;

/// The tensors of a collective; `whole` is the side on which they are whole, `parts` the other. Addresses
/// come with each call.
DeviceTransfers transfers_of(const Program& program, const Op& op, const std::vector<TensorId>& whole,
                             const std::vector<TensorId>& parts) {
  DeviceTransfers transfers;
  transfers.reserve(whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const program::Tensor& tensor = program.tensor(whole[i]);
    transfers.push_back({.dtype = tensor.dtype,
                         .elements = tensor.shape.numel(),
                         .cut = program::cut_of(program, op, parts[i])});
  }
  return transfers;
}

/// `run` gets the collectives of the op's group, in the way of now, its transfers and its stream.
template <class Run>
Kernel make(const Groups& groups, const Op& op, DeviceTransfers transfers, const Run& run) {
  const auto submit = [groups, run, transfers = std::move(transfers), group = program::group_of(op),
                       lane = op.lane](const KernelArgs& args) mutable {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      transfers[i].from = args.in[i];
      transfers[i].to = args.out[i];
    }
    std::invoke(run, groups->of(group), transfers, groups->context().stream_of(lane));
  };
  return {
      submit,
      {.name = "nccl::" + std::string(op.def->name), .library = "NCCL " + groups->library().version_text()}};
}

/// Nothing for memory that is not mapped.
Kernel make_mapped(const Groups& groups, const Op& op, DeviceTransfers transfers) {
  if (groups->peers() == nullptr) return {};
  const auto sum = [peers = groups->peers(), to_all = op.is(program::ops::kAllReduce)](
                       const Collectives& /*own*/, const DeviceTransfers& whole, cudaStream_t stream) {
    peers->sum(whole, stream, to_all);
  };
  Kernel kernel = make(groups, op, std::move(transfers), sum);
  kernel.info.name = "peer_sum";
  kernel.info.library = "rooflm";
  return kernel;
}

Kernel make_all_reduce(const Groups& groups, const Program& program, const Op& op) {
  DeviceTransfers transfers = transfers_of(program, op, op.inputs, op.outputs);
  if (op.attrs.flag("mapped")) return make_mapped(groups, op, std::move(transfers));
  groups->reserve(program::group_of(op), transfers);
  return make(groups, op, std::move(transfers), &Collectives::all_reduce);
}

Kernel make_all_gather(const Groups& groups, const Program& program, const Op& op) {
  return make(groups, op, transfers_of(program, op, op.outputs, op.inputs), &Collectives::all_gather);
}

/// Sums that are added to what is there are made aside first.
Kernel make_accumulating(const Groups& groups, const Program& program, const Op& op,
                         DeviceTransfers transfers) {
  constexpr std::size_t kAlignment = 256;
  struct Part {
    std::size_t offset;  ///< bytes from the beginning of what is aside
    std::int64_t elements;
  };
  std::vector<Part> parts;
  std::size_t bytes = 0;
  for (const TensorId id : op.outputs) {
    const program::Tensor& part = program.tensor(id);
    parts.push_back({.offset = bytes, .elements = part.shape.numel()});
    bytes += (static_cast<std::size_t>(part.bytes()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto submit = [groups, parts = std::move(parts), transfers = std::move(transfers),
                       aside = groups->aside(op.lane, bytes), group = program::group_of(op),
                       lane = op.lane](const KernelArgs& args) mutable {
    const cudaStream_t stream = groups->context().stream_of(lane);
    const Collectives& collectives = groups->of(group);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      transfers[i].from = args.in[i];
      transfers[i].to = args.out[i];
    }
    if (collectives.add_scattered(transfers, stream)) return;
    for (std::size_t i = 0; i < transfers.size(); ++i)
      transfers[i].to = static_cast<std::byte*>(aside->data()) + parts[i].offset;
    collectives.reduce_scatter(transfers, stream);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (parts[i].elements == 0) continue;
      launch_add(stream, transfers[i].dtype, parts[i].elements, args.out[i], transfers[i].to, args.out[i]);
    }
  };
  return {submit,
          {.name = "nccl::reduce_scatter, add", .library = "NCCL " + groups->library().version_text()}};
}

Kernel make_reduce_scatter(const Groups& groups, const Program& program, const Op& op) {
  DeviceTransfers transfers = transfers_of(program, op, op.inputs, op.outputs);
  if (op.attrs.flag("mapped")) return make_mapped(groups, op, std::move(transfers));
  groups->reserve(program::group_of(op), transfers);
  if (op.attrs.flag("accumulate")) return make_accumulating(groups, program, op, std::move(transfers));
  return make(groups, op, std::move(transfers), &Collectives::reduce_scatter);
}

Kernel make_pass_on(const Groups& groups, const Program& program, const Op& op) {
  return make(groups, op, transfers_of(program, op, op.inputs, op.outputs), &Collectives::pass_on);
}

KernelInfo message_info(const Groups& groups, const Op& op) {
  return {.name = "nccl::" + std::string(op.def->name),
          .library = "NCCL " + groups->library().version_text()};
}

/// A copy of what is sent goes on its way in a stream of its own, so that this rank goes on while the
/// receiver is not there yet, as on processors. A channel has a few places for copies, in turn: more than
/// micro-batches that can be on their way in any schedule.
Kernel make_send(const Groups& groups, const Program& program, const Op& op) {
  const DeviceMessage message{.channel = op.attrs.integer("channel"),
                              .bytes = static_cast<std::size_t>(program.tensor(op.inputs.at(0)).bytes())};
  const int places = groups->places();
  const auto place = groups->outbox(message, op.micro_batch % places);
  const auto submit = [groups, message, place, lane = op.lane,
                       is_again = op.micro_batch >= places](const KernelArgs& args) {
    const cudaStream_t stream = groups->context().stream_of(lane);
    if (is_again) check(cudaStreamWaitEvent(stream, place->sent.get(), 0), "sending a message");
    check(cudaMemcpyAsync(place->copy.data(), args.in[0], message.bytes, cudaMemcpyDeviceToDevice, stream),
          "copying what is sent");
    const cudaStream_t side = groups->context().message_stream(message.channel, stream);
    groups->send(message, place->copy.data(), side);
    check(cudaEventRecord(place->sent.get(), side), "sending a message");
  };
  return {submit, message_info(groups, op)};
}

Kernel make_receive(const Groups& groups, const Program& program, const Op& op) {
  const DeviceMessage message{.channel = op.attrs.integer("channel"),
                              .bytes = static_cast<std::size_t>(program.tensor(op.outputs.at(0)).bytes())};
  return {[groups, message, lane = op.lane](const KernelArgs& args) {
            groups->receive(message, args.out[0], groups->context().stream_of(lane));
          },
          message_info(groups, op)};
}

/// Without mapped memory nothing needs it.
Kernel make_barrier(const Groups& groups, const Program& /*program*/, const Op& op) {
  if (groups->peers() == nullptr) return {};
  return {[groups, lane = op.lane](const KernelArgs& /*args*/) {
            groups->peers()->barrier(groups->context().stream_of(lane));
          },
          {.name = "peer_barrier"}};
}

using Make = Kernel (*)(const Groups&, const Program&, const Op&);

KernelRow row_of(const Groups& groups, const program::OpDef& def, Make maker) {
  return {&def, [groups, maker](const Program& program, const Op& op) { return maker(groups, program, op); }};
}

}  // namespace

std::vector<KernelRow> nccl_rows(const Groups& groups) {
  namespace ops = program::ops;
  return {row_of(groups, ops::kAllReduce, make_all_reduce),
          row_of(groups, ops::kAllGather, make_all_gather),
          row_of(groups, ops::kReduceScatter, make_reduce_scatter),
          row_of(groups, ops::kSend, make_send),
          row_of(groups, ops::kReceive, make_receive),
          row_of(groups, ops::kPassOn, make_pass_on),
          row_of(groups, ops::kBarrier, make_barrier)};
}

}  // namespace rooflm::backends::cuda
