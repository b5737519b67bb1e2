// Updates that sum the gradients of data-parallel ranks, for backends that use host memory.
#include "backends/comm/summing_update.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "program/groups.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::backends::comm {
namespace {

using program::Op;
using program::Program;
using program::UpdateView;
using Rank = std::shared_ptr<Communicator>;

/// Gradients that one collective sums, and where.
struct Sums {
  std::vector<Transfer> transfers;
  std::vector<std::size_t> inputs;         ///< of the update, by transfer
  std::vector<std::int64_t> offset_bytes;  ///< from the beginning of the gradient to the operand

  /// Puts the sums in the place of the rank's own gradients.
  void bind(std::vector<void*>& in) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const void* operand = std::exchange(in[inputs[i]], transfers[i].to);
      transfers[i].from = static_cast<const std::byte*>(operand) - offset_bytes[i];
    }
  }
};

/// The sums of one update: those that it needs whole, and those of which it needs this rank's part.
struct UpdateSums {
  Sums whole, divided;
  std::vector<Allocation> memory;
};

UpdateSums sums_of(Backend& backend, const Program& program, const Op& op) {
  const UpdateView update(op);
  UpdateSums sums;
  for (std::size_t i = 0; i < update.count(); ++i) {
    const program::Tensor& gradient = program.tensor(update.gradient(i));
    const program::Tensor& weight = program.tensor(update.weight(i));
    const std::size_t element = core::size_of(gradient.dtype);
    const std::size_t in = update.gradient_in(i);
    sums.memory.emplace_back(backend, static_cast<std::size_t>(weight.shape.numel()) * element);
    // By what is split, not by sizes: one rank may have all of a small matrix.
    Sums& of = program::is_split(weight, program::group_of(op)) ? sums.divided : sums.whole;
    of.transfers.push_back({.dtype = gradient.dtype,
                            .to = sums.memory.back().data(),
                            .elements = gradient.shape.numel(),
                            .cut = {.unit = op.attrs.integer("unit")}});
    of.inputs.push_back(in);
    of.offset_bytes.push_back(op.input_offset.at(in) * static_cast<std::int64_t>(element));
  }
  return sums;
}

/// The same update of gradients that are as large as the weights.
Kernel make_plain(const Backend& backend, const Program& program, const Op& op) {
  const UpdateView update(op);
  Program own;
  own.tensors = program.tensors;
  for (std::size_t i = 0; i < update.count(); ++i)
    own.tensor(update.gradient(i)).shape = program.shape(update.weight(i));
  Op plain = op;
  plain.attrs.set("sums", false);
  plain.input_offset.clear();
  return backend.make_kernel(own, plain);
}

Kernel make(const Rank& rank, Backend& backend, const Program& program, const Op& op) {
  if (!op.attrs.flag("sums")) return {};
  Kernel plain = make_plain(backend, program, op);
  KernelInfo info = plain.info;
  info.name = "comm::sums, " + info.name;
  const auto run = [rank, plain = std::move(plain),
                    sums = std::make_shared<UpdateSums>(sums_of(backend, program, op)),
                    group = program::group_of(op),
                    name = fmt::format("{} in {}", op.def->name, op.scope)](const KernelArgs& args) {
    std::vector<void*> in(args.in.begin(), args.in.end());
    sums->whole.bind(in);
    sums->divided.bind(in);
    rank->begin(name);
    if (!sums->whole.transfers.empty()) rank->all_reduce(group, sums->whole.transfers);
    if (!sums->divided.transfers.empty()) rank->reduce_scatter(group, sums->divided.transfers, false);
    plain({.in = in, .out = args.out});
  };
  return {run, std::move(info)};
}

}  // namespace

std::vector<KernelRow> summing_updates(const Rank& rank, Backend& backend) {
  std::vector<KernelRow> rows;
  for (const program::OpDef* def : {&program::ops::kAdamW, &program::ops::kSgd}) {
    rows.push_back({def, [rank, &backend](const Program& program, const Op& op) {
                      return make(rank, backend, program, op);
                    }});
  }
  return rows;
}

}  // namespace rooflm::backends::comm
