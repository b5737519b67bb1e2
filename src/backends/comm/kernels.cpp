// Kernels of the collectives, for backends that use host memory.
#include "backends/comm/kernels.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::backends::comm {
namespace {

using program::Op;
using program::Program;
using program::TensorId;
using Rank = std::shared_ptr<Communicator>;

/// The tensors of a collective; `whole` is the side (inputs or outputs) where they are whole, `parts` the
/// other. Addresses come per call.
std::vector<Transfer> transfers_of(const Program& program, const Op& op, const std::vector<TensorId>& whole,
                                   const std::vector<TensorId>& parts) {
  std::vector<Transfer> transfers;
  transfers.reserve(whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const program::Tensor& tensor = program.tensor(whole[i]);
    transfers.push_back({.dtype = tensor.dtype,
                         .elements = tensor.shape.numel(),
                         .cut = program::cut_of(program, op, parts[i])});
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
  return with_addresses(transfers_of(program, op, op.inputs, op.outputs),
                        [rank, group = program::group_of(op)](Transfers t) { rank->all_reduce(group, t); });
}

Kernel make_all_gather(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.outputs, op.inputs),
                        [rank, group = program::group_of(op)](Transfers t) { rank->all_gather(group, t); });
}

Kernel make_reduce_scatter(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.inputs, op.outputs),
                        [rank, group = program::group_of(op), accumulate = op.attrs.flag("accumulate")](
                            Transfers t) { rank->reduce_scatter(group, t, accumulate); });
}

Kernel make_pass_on(const Rank& rank, const Program& program, const Op& op) {
  return with_addresses(transfers_of(program, op, op.inputs, op.outputs),
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

/// Where rows lie that a rank exchanges with the others (program/ops/exchange.cpp), by the offsets [N, E + 1]
/// of all ranks.
class ExchangedRows {
 public:
  ExchangedRows(const Program& program, const Op& op)
      : ranks_(op.attrs.integer("parts")),
        index_(op.attrs.integer("index")),
        experts_(program.shape(op.inputs.at(1))[1] - 1),
        row_bytes_(program.shape(op.inputs.at(0))[-1] *
                   static_cast<std::int64_t>(core::size_of(program.tensor(op.inputs.at(0)).dtype))),
        pieces_(static_cast<std::size_t>(ranks_)) {}

  [[nodiscard]] std::int64_t ranks() const { return ranks_; }
  [[nodiscard]] std::int64_t index() const { return index_; }
  [[nodiscard]] std::int64_t own_experts() const { return experts_ / ranks_; }
  void set_counts(const void* counts) { counts_ = static_cast<const std::int32_t*>(counts); }
  /// Rows of `rank` that are of the experts of `owner`: their first byte, and how many there are.
  [[nodiscard]] std::int64_t first(std::int64_t rank, std::int64_t owner) const {
    return row_bytes_ * at(rank, owner * own_experts());
  }
  [[nodiscard]] std::int64_t bytes(std::int64_t rank, std::int64_t owner) const {
    return first(rank, owner + 1) - first(rank, owner);
  }
  /// Rows of `rank` for one of this rank's experts.
  [[nodiscard]] std::int64_t rows(std::int64_t rank, std::int64_t expert) const {
    const std::int64_t e = index_ * own_experts() + expert;
    return at(rank, e + 1) - at(rank, e);
  }
  /// Memory for the rows of `rank` that are of this rank's experts.
  [[nodiscard]] std::byte* piece(std::int64_t rank) {
    auto& piece = pieces_[static_cast<std::size_t>(rank)];
    piece.resize(static_cast<std::size_t>(bytes(rank, index_)));
    return piece.data();
  }
  /// copy(place, rank, first, bytes) of rows sorted by expert, then rank, and of those of each rank.
  template <class Copy>
  void each_piece(const Copy& copy) const {
    std::vector<std::int64_t> done(static_cast<std::size_t>(ranks_), 0);
    std::int64_t place = 0;
    for (std::int64_t expert = 0; expert < own_experts(); ++expert) {
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        const std::int64_t size = row_bytes_ * rows(rank, expert);
        std::int64_t& first = done[static_cast<std::size_t>(rank)];
        if (size > 0) copy(place, rank, first, size);
        place += size;
        first += size;
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t at(std::int64_t rank, std::int64_t expert) const {
    return counts_[rank * (experts_ + 1) + expert];
  }
  std::int64_t ranks_, index_, experts_, row_bytes_;
  std::vector<std::vector<std::byte>> pieces_;
  const std::int32_t* counts_ = nullptr;
};

/// Messages of rows: no pipeline has that many parts.
constexpr std::int64_t kRowsChannel = (1 << 17) - 1;

Message message_of_rows(const Op& op) {
  return {.group = program::group_of(op), .channel = kRowsChannel, .micro_batch = op.micro_batch};
}

/// Sends from(other) to each other rank of the group, then receives to(other): addresses of bytes(sender,
/// owner). No rank waits before it has sent all. `forth`: rows travel to the owners of their experts.
template <class From, class To>
void swap(Communicator& rank, Message message, const ExchangedRows& rows, bool forth, const From& from,
          const To& to) {
  const auto each_other = [&](bool is_owner, const auto& act) {
    for (std::int64_t other = 0; other < rows.ranks(); ++other) {
      message.peer = static_cast<int>(other);
      const std::int64_t bytes = is_owner ? rows.bytes(rows.index(), other) : rows.bytes(other, rows.index());
      if (other != rows.index() && bytes > 0) act(other, bytes);
    }
  };
  each_other(forth, [&](std::int64_t other, std::int64_t bytes) { rank.send(message, from(other), bytes); });
  each_other(!forth,
             [&](std::int64_t other, std::int64_t bytes) { rank.receive(message, to(other), bytes); });
}

Kernel make_exchange_rows(const Rank& rank, const Program& program, const Op& op) {
  const auto rows = std::make_shared<ExchangedRows>(program, op);
  return {[rank, rows, message = message_of_rows(op)](const KernelArgs& args) {
    rows->set_counts(args.in[1]);
    const std::int64_t own_rank = rows->index();
    const auto* own = static_cast<const std::byte*>(args.in[0]);
    swap(
        *rank, message, *rows, true, [&](std::int64_t to) { return own + rows->first(own_rank, to); },
        [&](std::int64_t from) { return rows->piece(from); });
    auto* received = static_cast<std::byte*>(args.out[0]);
    rows->each_piece([&](std::int64_t place, std::int64_t from, std::int64_t first, std::int64_t bytes) {
      const std::byte* piece = from == own_rank ? own + rows->first(own_rank, own_rank) : rows->piece(from);
      std::memcpy(received + place, piece + first, static_cast<std::size_t>(bytes));
    });
    auto* offsets = static_cast<std::int32_t*>(args.out[1]);
    offsets[0] = 0;
    for (std::int64_t expert = 0; expert < rows->own_experts(); ++expert) {
      std::int64_t count = 0;
      for (std::int64_t from = 0; from < rows->ranks(); ++from) count += rows->rows(from, expert);
      offsets[expert + 1] = offsets[expert] + static_cast<std::int32_t>(count);
    }
  }};
}

Kernel make_return_rows(const Rank& rank, const Program& program, const Op& op) {
  const auto rows = std::make_shared<ExchangedRows>(program, op);
  return {[rank, rows, message = message_of_rows(op)](const KernelArgs& args) {
    rows->set_counts(args.in[1]);
    const std::int64_t own_rank = rows->index();
    const auto* received = static_cast<const std::byte*>(args.in[0]);
    auto* own = static_cast<std::byte*>(args.out[0]);
    rows->each_piece([&](std::int64_t place, std::int64_t to, std::int64_t first, std::int64_t bytes) {
      std::byte* piece = to == own_rank ? own + rows->first(own_rank, own_rank) : rows->piece(to);
      std::memcpy(piece + first, received + place, static_cast<std::size_t>(bytes));
    });
    swap(
        *rank, message, *rows, false, [&](std::int64_t to) { return rows->piece(to); },
        [&](std::int64_t from) { return own + rows->first(own_rank, from); });
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
          row_of(rank, ops::kBarrier, make_barrier),
          row_of(rank, ops::kExchangeRows, make_exchange_rows),
          row_of(rank, ops::kReturnRows, make_return_rows)};
}

}  // namespace rooflm::backends::comm
