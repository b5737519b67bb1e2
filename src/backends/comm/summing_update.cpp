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

/// The gradients of one update. `whole` ones are needed whole, of `divided` ones only this rank's part.
struct Sums {
  std::vector<Transfer> whole, divided;
  std::vector<std::size_t> whole_in, divided_in;  ///< indices of the operands
  std::vector<std::int64_t> offset_bytes;         ///< of divided ones: where this rank's part begins
  std::vector<std::byte> memory;
};

/// Where the sums of all tensors lie, aligned for vectors.
Sums sums_of(const Program& program, const Op& op) {
  constexpr std::size_t kAlignment = 64;
  const UpdateView update(op);
  Sums sums;
  std::vector<std::size_t> begins;
  std::size_t bytes = kAlignment;
  for (std::size_t i = 0; i < update.count(); ++i) {
    const program::Tensor& gradient = program.tensor(update.gradient(i));
    const std::int64_t elements = gradient.shape.numel();
    const std::int64_t own = program.shape(update.weight(i)).numel();
    const Transfer transfer{.dtype = gradient.dtype, .elements = elements, .unit = op.attrs.integer("unit")};
    const auto size = static_cast<std::int64_t>(core::size_of(gradient.dtype));
    const std::size_t in = update.gradient_in(i);
    if (own == elements) {
      sums.whole.push_back(transfer);
      sums.whole_in.push_back(in);
    } else {
      sums.divided.push_back(transfer);
      sums.divided_in.push_back(in);
      sums.offset_bytes.push_back(op.input_offset.at(in) * size);
    }
    begins.push_back(bytes);
    bytes += (static_cast<std::size_t>(own * size) + kAlignment - 1) / kAlignment * kAlignment;
  }
  sums.memory.resize(bytes);
  const auto first = reinterpret_cast<std::uintptr_t>(sums.memory.data());
  std::byte* aligned = sums.memory.data() + (kAlignment - first % kAlignment) % kAlignment;
  std::size_t of_whole = 0;
  std::size_t of_divided = 0;
  for (std::size_t i = 0; i < update.count(); ++i) {
    const bool is_whole = of_whole < sums.whole_in.size() && sums.whole_in[of_whole] == update.gradient_in(i);
    Transfer& transfer = is_whole ? sums.whole[of_whole++] : sums.divided[of_divided++];
    transfer.to = aligned + begins[i] - kAlignment;
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

Kernel make(const Rank& rank, const Backend& backend, const Program& program, const Op& op) {
  if (!op.attrs.flag("sums")) return {};
  Kernel plain = make_plain(backend, program, op);
  KernelInfo info = plain.info;
  info.name = "comm::sums, " + info.name;
  const auto run = [rank, plain = std::move(plain), sums = std::make_shared<Sums>(sums_of(program, op)),
                    group = program::group_of(op),
                    name = fmt::format("{} in {}", op.def->name, op.scope)](const KernelArgs& args) {
    std::vector<void*> in(args.in.begin(), args.in.end());
    for (std::size_t i = 0; i < sums->whole.size(); ++i) {
      void*& operand = in[sums->whole_in[i]];
      sums->whole[i].from = std::exchange(operand, sums->whole[i].to);
    }
    for (std::size_t i = 0; i < sums->divided.size(); ++i) {
      void*& operand = in[sums->divided_in[i]];
      const void* part = std::exchange(operand, sums->divided[i].to);
      sums->divided[i].from = static_cast<const std::byte*>(part) - sums->offset_bytes[i];
    }
    rank->begin(name);
    if (!sums->whole.empty()) rank->all_reduce(group, sums->whole);
    if (!sums->divided.empty()) rank->reduce_scatter(group, sums->divided, false);
    plain({.in = in, .out = args.out});
  };
  return {run, std::move(info)};
}

}  // namespace

std::vector<KernelRow> summing_updates(const Rank& rank, const Backend& backend) {
  std::vector<KernelRow> rows;
  for (const program::OpDef* def : {&program::ops::kAdamW, &program::ops::kSgd}) {
    rows.push_back({def, [rank, &backend](const Program& program, const Op& op) {
                      return make(rank, backend, program, op);
                    }});
  }
  return rows;
}

}  // namespace rooflm::backends::comm
