// How the devices of a run are joined, and how long a collective takes there (data/links.json).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/sharding.h"
#include "devices/device.h"
#include "perfmodel/estimate.h"
#include "program/shard.h"

namespace rooflm::perfmodel {

/// Seconds by bytes, ascending in both.
using Curve = std::vector<std::pair<double, double>>;
/// Seconds at `bytes`: between points by the logarithms of both, beyond the largest at its bandwidth, below
/// the smallest its time.
double seconds_at(const Curve& curve, double bytes);

/// pass_on: each rank sends to the next of a ring, all at once. all_to_all: each rank to all others.
enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  point_to_point,
  pass_on
};
std::string_view name_of(Collective kind);

/// Collectives as so many ranks of one node take them, by the bytes that each rank sends.
struct MeasuredRing {
  int ranks = 2;
  std::map<Collective, Curve> seconds{};
};

/// One kind of link. Times of steps are those of NCCL's own cost model.
struct LinkLevel {
  std::string name{};
  double byte_per_s = 0;   ///< per device and direction, by the data sheet
  double share = 1;        ///< of it that collectives reach
  double base_s = 0;       ///< of any collective
  double step_s = 0;       ///< of one step of a ring
  double tree_step_s = 0;  ///< of one level of a tree
  /// Joined by links of `measured_byte_per_s`, with fewer ranks first; empty where nothing was measured.
  std::vector<MeasuredRing> measured{};
  double measured_byte_per_s = 0;
};

/// Devices in nodes. Neighbouring ranks share a node.
struct Cluster {
  int per_node = 1;
  /// Racks of many hosts, of which a job is given parts that none of its groups crosses.
  bool has_segments = false;
  LinkLevel inside{}, between{};
  std::optional<LinkLevel> pair{};  ///< a bridge between ranks 2 i and 2 i + 1, beside `inside`
  double spread = 0;                ///< relative half width of times
  double matmul_slowdown = 1;       ///< of products beside a collective
  double other_slowdown = 1;        ///< of other ops
  double chip_spread = 0;           ///< standard deviation of the clocks that a limit leaves to its devices
  double buffer_bytes = 0;          ///< that each group of ranks keeps
  Basis basis = Basis::assumed;     ///< nothing of it was measured here
  std::string source{};
};

/// Who starts collectives: the host, one by one, or a graph that holds the whole step. Small ones take half
/// as long in a graph.
enum class Launches : std::uint8_t { launched, replayed };

/// The cluster that devices of this kind usually stand in. `per_node` > 0 and `network_byte_per_s` > 0
/// replace what the data says.
Cluster cluster_of(const devices::Device& device, int per_node = 0, double network_byte_per_s = 0,
                   Launches launches = Launches::replayed);

/// Throws core::UsageError for several ranks in one node of devices without links, of which only one can be
/// planned.
void require_links(const Cluster& cluster, const devices::Device& device, int ranks);

/// Most ranks that map each other's memory: backends/cuda/kernels/peer_barrier.h.
inline constexpr int kMostPeers = 8;
/// Throws core::Unavailable for ranks of several nodes, and for more data-parallel ones than kMostPeers: as
/// the backend does with --collectives peer-memory.
void require_peers(const Cluster& cluster, int ranks, int data_ranks);

/// Ranks first, first + stride, ...: `size` of them. A job of more ranks than a node has puts some groups
/// elsewhere in their nodes than the first: all wait for the one that has the fewest ways out of a node.
struct Ranks {
  int size = 1;
  int stride = 1;
  int of = 0;  ///< ranks of the job, which such groups share; 0: this group alone
};
/// The ranks of a group of a split step.
Ranks ranks_of(program::Group group, const compile::Sharding& sharding);

/// Seconds of one collective of `bytes` (of the whole tensor) over `ranks`. Rings and, of all_reduce, trees,
/// whichever is faster: base + steps + traffic / bandwidth, with traffic 2 (n-1)/n of the bytes for
/// all_reduce, (n-1)/n for all_gather and reduce_scatter, 1 for point_to_point and pass_on. A ring that
/// leaves a node leaves it through the networks of all its ranks there, and is as fast as where those are
/// fewest. Where the links of a node were measured, a ring takes as long as the measured one that sends as
/// much, and its further steps. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md; NVIDIA/nccl,
/// src/graph/tuning.cc. Of all_to_all the bytes are a rank's own, of which it sends (n - k)/n through its own
/// way out of a node with k of the ranks, beside (k-1)/n within it, which take as long as in a gather.
double collective_seconds(const Cluster& cluster, Collective kind, double bytes, Ranks ranks);

/// What a rank sends of the bytes of a collective over so many, around a ring.
double sent_share(Collective kind, int ranks);

/// What of an all_to_all of rows crosses to other nodes where a token with `active` experts goes to each node
/// once: by what crosses where it goes to each of its experts, with experts drawn at random.
double share_sent_once(const Cluster& cluster, Ranks ranks, double active);

/// The share of a typical clock that the slowest of `devices` has: 1 / (1 + s E), with E the mean of the
/// largest of so many standard normal numbers.
double slowest_clock_share(const Cluster& cluster, int devices);

/// The slowest kind of link on its way: that between nodes where the ranks stand in several.
const LinkLevel& link_of(const Cluster& cluster, Ranks ranks);

}  // namespace rooflm::perfmodel
