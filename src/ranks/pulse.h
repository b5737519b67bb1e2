// Whether the other ranks of a job are alive while a rank waits longer than within a step. Private to the
// room.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "core/system/descriptor.h"

namespace rooflm::ranks {

/// A thread that tells all others a few times a second that this rank waits for somebody, or has worked: used
/// a processor for at least 5 % of the time since, or read or written disks. By UDP, apart from messages. A
/// process that is stopped, or sleeps for good, tells nothing.
class Pulse {
 public:
  /// Listens on a free port: of 127.0.0.1 where all ranks are on one host. Throws core::SystemError.
  Pulse(int rank, int ranks, bool is_one_host);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse();

  [[nodiscard]] int port() const { return port_; }
  /// Begins to tell the others; each has the address and port of its pulse, this one's are not used. `job` is
  /// a random number of all ranks, so that no stranger's pulses are taken for theirs; `pause` lies between
  /// two.
  void begin(const std::vector<sockaddr_in>& others, std::uint64_t job, std::chrono::milliseconds pause);
  /// Whether this rank waits for others: it is alive then without any work.
  void set_waiting(bool is_waiting) { is_waiting_ = is_waiting; }
  /// This rank has done something, whatever it used of its processors.
  void set_working() { has_worked_ = true; }
  /// Seconds from when that rank last said that it is alive to when this one last listened, so that a thread
  /// that gets no processor here takes nobody for silent; less than 0 where it never did, as where a firewall
  /// lets nothing through.
  [[nodiscard]] double silent_s(int rank) const;

 private:
  void tell();
  void listen();

  int rank_;
  core::Descriptor socket_;
  int port_ = 0;
  std::uint64_t job_ = 0;
  std::vector<sockaddr_in> others_;
  std::vector<std::atomic<std::int64_t>> heard_ns_;  ///< of the steady clock, by rank; 0: never
  std::atomic<std::int64_t> listened_ns_ = 0;
  std::atomic<bool> is_waiting_ = false;
  std::atomic<bool> has_worked_ = false;  ///< since it last told
  std::jthread thread_;
};

}  // namespace rooflm::ranks
