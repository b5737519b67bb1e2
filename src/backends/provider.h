// What a backend tells the rest of the program about its devices, and how it makes one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/gauges.h"
#include "devices/device.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends {

/// Which GEMM algorithm a GPU takes for each matmul.
enum class GemmSearch : std::uint8_t {
  none,  ///< the library's first proposal
  kept,  ///< what the autotune cache holds; the first proposal for what it lacks
  full   ///< search what the cache lacks, and keep it there
};
std::string_view name_of(GemmSearch search);
/// Throws core::UsageError with a suggestion.
GemmSearch parse_gemm_search(std::string_view name);

struct MakeOptions {
  bool fast = true;  ///< the fused engine's kernels first; otherwise only the reference kernels, where a
                     ///< device has them
  int threads = 0;   ///< of a processor; 0: one per core
  GemmSearch gemm_search = GemmSearch::full;
  std::string gemm_choices{};  ///< GemmChoices::text of an earlier process: they win over cache and search
  bool deterministic = true;   ///< sums in a fixed order, the same bits every time
  int sharers = 1;             ///< ranks that use the device: each gets as much of its memory
};

/// One thing that can be timed. Rates are amount / seconds; a latency has the amount 0.
struct TimedLoop {
  std::string what;     ///< "read", "write", "update", "copy", "adamw"; "instruction"; "launch", ...
  std::string level;    ///< "DRAM", "L2"; "host", or another GPU: "cuda:1"; "" for launches
  std::string problem;  ///< "1024 MiB"
  double amount = 0;    ///< bytes that one run moves, as the loop names them, or flop that it computes
  /// Seconds of one run, per launch for latencies, after it has ended; throws core::Unavailable.
  std::function<double()> run_s;
};

/// The instruction peak of a device for a dtype ("fp32", "tf32", "bf16", "fp16", "fp8"): multiply-adds on
/// registers alone, once per kind of instruction. One of them is the fastest; which one is a matter of
/// measuring.
struct InstructionLoops {
  std::vector<TimedLoop> loops;  ///< amount in flop, problem "wgmma m64n256k16"; each some milliseconds
  std::string missing{};         ///< why there are none here; "" when there are
};

/// "driver" -> "580.65"
using Lines = std::vector<std::pair<std::string, std::string>>;

/// How the GEMM algorithms of a backend's kernels were found.
struct GemmChoices {
  int first = 0;          ///< matmuls that run the library's first proposal
  int kept = 0;           ///< that took their algorithm from the autotune cache, or from an earlier process
  int searched = 0;       ///< whose algorithm was searched by this backend
  double search_s = 0;    ///< that took so long
  std::string damaged{};  ///< the autotune cache, where it was damaged and is as good as none; "" otherwise
  std::string text{};  ///< the algorithms themselves, for MakeOptions::gemm_choices; "" when there are none
};

/// Devices of a backend that are here and run.
struct FoundDevices {
  std::vector<std::string> names;  ///< "cuda:0", ...
  std::string missing{};           ///< why there are none; "" when there are, or when nobody would expect one
};

/// One per backend, without state. `device` is a name that parse() returned.
class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  /// What the names of its devices begin with: "cuda".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The full name of a device from what follows the colon ("" when nothing does): "cuda:0". Throws
  /// core::UsageError.
  [[nodiscard]] virtual std::string parse(std::string_view rest) const = 0;
  /// What is known of it. Never throws for a device that is not here: then only its kind is known.
  [[nodiscard]] virtual devices::Device describe(const std::string& device) const = 0;
  /// Throws core::Unavailable with the reason when there is no such device here.
  [[nodiscard]] virtual std::unique_ptr<Backend> make(const std::string& device,
                                                      const MakeOptions& options) const = 0;

  /// Gives a backend that this made the collectives of its rank of a split step
  /// (program/ops/collectives.cpp), in the way that is wished for, or in all that may be tried. All ranks
  /// call it, with the same mesh and wish. Throws core::Unavailable where a device has none, or not that way;
  /// ranks::RankLost.
  virtual void join(Backend& backend, const std::shared_ptr<ranks::Transport>& transport,
                    const program::Mesh& mesh, CollectiveWish wish) const;

  /// What carries collectives between ranks on its devices, as "NCCL 2.28.9", or why nothing does; "" where
  /// there are no ranks. May load a library.
  [[nodiscard]] virtual std::string collectives() const { return {}; }

  /// Its devices on this machine. May load a driver.
  [[nodiscard]] virtual FoundDevices found() const { return {}; }
  /// The dtypes, by option names, that its devices compute in, if this machine can have one: by a look at the
  /// files of its driver, in no time. With `anywhere` of any machine that this build runs on.
  [[nodiscard]] virtual std::vector<std::string> offered_dtypes(bool /*anywhere*/) const { return {}; }
  /// Whether it computes anything; planning needs a description only.
  [[nodiscard]] virtual bool runs() const { return true; }
  /// Whether its kernels run on this machine's processor and in this process's memory, so that clock,
  /// resident memory, hardware counters and threads of the process are the device's.
  [[nodiscard]] virtual bool is_host() const { return false; }
  /// What `info` prints and records keep: versions, sizes, clocks now and at most.
  [[nodiscard]] virtual Lines environment() const { return {}; }
  /// The same as a JSON object, "" for none.
  [[nodiscard]] virtual std::string environment_json() const { return {}; }
  /// What a device tells of itself while it works. Never throws.
  [[nodiscard]] virtual FoundGauges gauges(const std::string& /*device*/) const { return {}; }
  /// How the GEMM algorithms of a backend that this made were found, for the kernels made so far.
  [[nodiscard]] virtual GemmChoices gemm_choices(const Backend& /*backend*/) const { return {}; }
  /// Loops over its memories, and what brings work and data to it. Throw core::Unavailable,
  /// core::OutOfMemory.
  [[nodiscard]] virtual std::vector<TimedLoop> memory_loops(const std::string& device) const;
  [[nodiscard]] virtual std::vector<TimedLoop> link_loops(const std::string& device) const;
  /// Nothing where the fastest instructions of the architecture are not among those that the backend can run:
  /// a limit that products pass would be none. Throws core::Unavailable, core::OutOfMemory.
  [[nodiscard]] virtual InstructionLoops instruction_loops(const std::string& /*device*/,
                                                           const std::string& /*dtype*/) const {
    return {};
  }
};

}  // namespace rooflm::backends
