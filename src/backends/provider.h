// What a backend tells the rest of the program about its devices, and how to make one.
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
#include "core/named.h"
#include "devices/device.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends {

using core::name_of;

/// Which GEMM algorithm a GPU takes for each matmul.
enum class GemmSearch : std::uint8_t {
  none,  ///< the library's first proposal
  kept,  ///< from the autotune cache; if it is not there, the first proposal
  full   ///< from the autotune cache; if it is not there, autotuned and added to it
};
constexpr auto names_of(GemmSearch) {
  return core::named<GemmSearch>(
      "--autotune", {{GemmSearch::none, "none"}, {GemmSearch::kept, "kept"}, {GemmSearch::full, "full"}});
}

struct MakeOptions {
  bool fast = true;  ///< the fused engine's kernels first; otherwise only the reference kernels, where a
                     ///< device has them
  int threads = 0;   ///< CPU threads; 0: one per core
  GemmSearch gemm_search = GemmSearch::full;
  /// GemmChoices::text of an earlier process; takes precedence over cache and autotuning
  std::string gemm_choices{};
  bool deterministic = true;  ///< sums in a fixed order: the same bits every time
  int sharers = 1;            ///< ranks that share the device; each gets an equal share of its memory
};

/// A micro-benchmark. Rates are amount / seconds; latencies have the amount 0.
struct TimedLoop {
  std::string what;     ///< "read", "write", "update", "copy", "adamw"; "instruction"; "launch", ...
  std::string level;    ///< "DRAM", "L2"; "host" or another GPU ("cuda:1") for links; "" for launches
  std::string problem;  ///< "1024 MiB"
  double amount = 0;    ///< bytes that one run moves, or FLOP that it computes
  /// Runs once, waits, and returns the seconds (per launch for latencies). Throws core::Unavailable.
  std::function<double()> run_s;
};

/// The instruction peak of a device for a dtype ("fp32", "bf16x6", "tf32", "bf16", "fp16", "fp8"): loops of
/// multiply-adds on registers, one per kind of instruction. The peak is the fastest of them.
struct InstructionLoops {
  std::vector<TimedLoop> loops;  ///< amount in FLOP, problem "wgmma m64n256k16"; a few milliseconds each
  std::string missing{};         ///< why there are none here; "" if there are
};

/// "driver" -> "580.65"
using Lines = std::vector<std::pair<std::string, std::string>>;

/// Where the GEMM algorithms of a backend's kernels came from.
struct GemmChoices {
  int first = 0;          ///< matmuls that run the library's first proposal
  int kept = 0;           ///< matmuls whose algorithm came from the autotune cache or an earlier process
  int searched = 0;       ///< matmuls that this backend autotuned
  double search_s = 0;    ///< total time of autotuning
  std::string damaged{};  ///< the autotune cache, if it was damaged and therefore ignored; "" otherwise
  std::string text{};     ///< the algorithms, for MakeOptions::gemm_choices; "" if there are none
};

/// A device of a backend on this machine that works.
struct FoundDevice {
  std::string name;       ///< "cuda:0"; "" if there is none
  std::string missing{};  ///< why there is none; "" if there is, or if none would be expected
};

/// Describes and makes the devices of one backend. Stateless. `device` is a name that parse() returned.
class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  /// The prefix of its device names: "cuda".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The full name of a device, "cuda:0", from what follows the colon ("" if nothing does). Throws
  /// core::UsageError.
  [[nodiscard]] virtual std::string parse(std::string_view rest) const = 0;
  /// Describes the device. Never throws; if the device is absent, only its kind is known.
  [[nodiscard]] virtual devices::Device describe(const std::string& device) const = 0;
  /// Throws core::Unavailable with the reason if the device is absent.
  [[nodiscard]] virtual std::unique_ptr<Backend> make(const std::string& device,
                                                      const MakeOptions& options) const = 0;

  /// Adds the collectives of a rank of a split step (program/ops/collectives.cpp) to a backend made by this
  /// provider: in the requested way, or in all ways that may be tried. All ranks must call it with the same
  /// mesh and wish. Throws core::Unavailable if the device cannot run collectives (in that way), and
  /// ranks::RankLost.
  virtual void join(Backend& backend, const std::shared_ptr<ranks::Transport>& transport,
                    const program::Mesh& mesh, CollectiveWish wish) const;

  /// The library that carries collectives on its devices, "NCCL 2.28.9", or why there is none; "" if the
  /// backend has no ranks. May load a library.
  [[nodiscard]] virtual std::string collectives() const { return {}; }

  /// The first of its devices here that works, tried from number `first` on and round. May load a driver;
  /// opens the devices that it tries, and no others.
  [[nodiscard]] virtual FoundDevice find_usable(int /*first*/) const { return {}; }
  /// How many of its devices this process sees. May load a driver; opens none.
  [[nodiscard]] virtual int count() const { return 0; }
  /// The dtypes, by option names, that its devices compute in, if this machine may have one: decided by the
  /// presence of driver files, which is fast. With `anywhere`: those of any machine that this build supports.
  [[nodiscard]] virtual std::vector<std::string> offered_dtypes(bool /*anywhere*/) const { return {}; }
  /// Whether it computes anything; for planning a description suffices.
  [[nodiscard]] virtual bool runs() const { return true; }
  /// Whether its kernels run on this machine's CPU in this process, so that the process's clock, resident
  /// memory, hardware counters and threads describe the device.
  [[nodiscard]] virtual bool is_host() const { return false; }
  /// What `info` prints and records store: versions, sizes, current and maximum clocks. With `opens`, each
  /// device is opened and tried; otherwise only the driver is asked, which takes no memory on any device.
  [[nodiscard]] virtual Lines environment(bool /*opens*/) const { return {}; }
  /// The same as a JSON object; "" for none.
  [[nodiscard]] virtual std::string environment_json() const { return {}; }
  /// What a device reports while it works. Never throws.
  [[nodiscard]] virtual FoundGauges gauges(const std::string& /*device*/) const { return {}; }
  /// Where the GEMM algorithms of a backend's kernels made so far came from.
  [[nodiscard]] virtual GemmChoices gemm_choices(const Backend& /*backend*/) const { return {}; }
  /// Micro-benchmarks of its memories, and of the links and launches that feed it. Throw core::Unavailable,
  /// core::OutOfMemory.
  [[nodiscard]] virtual std::vector<TimedLoop> memory_loops(const std::string& device) const;
  [[nodiscard]] virtual std::vector<TimedLoop> link_loops(const std::string& device) const;
  /// Empty if the backend cannot run the architecture's fastest instructions: matmuls could exceed the
  /// measured peak. Throws core::Unavailable, core::OutOfMemory.
  [[nodiscard]] virtual InstructionLoops instruction_loops(const std::string& /*device*/,
                                                           const std::string& /*dtype*/) const {
    return {};
  }
};

}  // namespace rooflm::backends
