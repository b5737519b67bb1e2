// The collectives of one rank.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "program/groups.h"

namespace rooflm::backends::comm {

/// A tensor to transfer; `from` and `to` may be equal.
struct Transfer {
  core::DType dtype = core::DType::f32;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t elements = 0;  ///< of the whole tensor
  program::Cut cut{};         ///< into the parts of ranks
};

/// Identifies a message between two ranks of a group: a receive matches the send with the same numbers.
struct Message {
  program::Group group = program::Group::pipeline;
  int peer = 0;  ///< index in the group
  std::int64_t channel = 0;
  int micro_batch = 0;
};

/// The collectives of one rank in host memory, as defined in program/ops/collectives.cpp. All ranks of a
/// group must call the same ones in the same order. A call returns when its result is complete; `send`
/// returns when the source may be overwritten. Throws core::Unavailable if another rank has failed.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  /// Announces this rank's next collective, "all_reduce in h.3/gradients", for error messages of ranks that
  /// wait for it.
  virtual void begin(std::string_view /*op*/) {}
  /// Several tensors form one call.
  using Transfers = std::span<const Transfer>;
  virtual void all_reduce(program::Group group, Transfers whole) = 0;
  /// `from` is this rank's part.
  virtual void all_gather(program::Group group, Transfers whole) = 0;
  /// `to` is this rank's part; `accumulate` adds to what is there.
  virtual void reduce_scatter(program::Group group, Transfers whole, bool accumulate) = 0;
  /// Ring shift: `from` goes to the next rank, `to` comes from the previous one. They must not overlap.
  virtual void pass_on(program::Group group, Transfers whole) = 0;
  virtual void send(const Message& message, const void* from, std::int64_t bytes) = 0;
  virtual void receive(const Message& message, void* to, std::int64_t bytes) = 0;
};

}  // namespace rooflm::backends::comm
