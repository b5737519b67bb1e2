// How the devices of a run are joined, and how long a collective takes there.
#include "perfmodel/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>

#include "core/error.h"
#include "perfmodel/planning_text.h"

namespace rooflm::perfmodel {
namespace {

using Json = nlohmann::json;

const Json& links_json() {
  static const Json kData = Json::parse(links_text());
  return kData;
}

LinkLevel level_of(const std::string& name, double byte_per_s, Launches launches) {
  const Json& json = links_json().at("levels").at(name);
  LinkLevel level{.name = name,
                  .byte_per_s = byte_per_s,
                  .share = json.at("share"),
                  .base_s = json.at("base_s"),
                  .step_s = json.at("step_s"),
                  .tree_step_s = json.at("tree_step_s")};
  if (!json.contains("measured")) return level;
  const Json& measured = json.at("measured");
  level.measured_byte_per_s = measured.at("byte_per_s");
  for (const Json& ring : measured.at(launches == Launches::replayed ? "replayed" : "launched")) {
    MeasuredRing& made = level.measured.emplace_back(MeasuredRing{.ranks = ring.at("ranks")});
    for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
      made.seconds[kind] = ring.at(name_of(kind)).get<Curve>();
  }
  return level;
}

/// Where the ranks of a group stand.
struct Placement {
  int nodes = 1;
  int per_node = 1;  ///< of the ranks, at most
  int fewest = 1;    ///< on any of the nodes
};

/// Of the group that starts `first` places into a node.
Placement placement(int per_node, Ranks ranks, std::int64_t first) {
  const std::int64_t stride = std::max(1, ranks.stride);
  if (stride >= per_node) return {.nodes = ranks.size};
  const std::int64_t last = first + (ranks.size - 1) * stride;
  const auto nodes = static_cast<int>(last / per_node + 1);
  if (nodes == 1) return {.nodes = 1, .per_node = ranks.size, .fewest = ranks.size};
  const std::int64_t of_first = (per_node - first + stride - 1) / stride;
  const std::int64_t of_last = last % per_node / stride + 1;
  const std::int64_t between = nodes > 2 ? per_node / stride : of_first;
  return {.nodes = nodes,
          .per_node = static_cast<int>(std::max({of_first, of_last, between})),
          .fewest = static_cast<int>(std::min({of_first, of_last, between}))};
}

/// Neighbouring ranks from the first to the last of them.
std::int64_t span_of(Ranks ranks) { return (std::int64_t{ranks.size} - 1) * ranks.stride + 1; }

/// Of a group that begins with a node, and has as many ranks on each.
Placement even_placement(int per_node, Ranks ranks) {
  const bool is_one_node = span_of(ranks) <= per_node;
  const int on_each =
      is_one_node ? ranks.size : std::clamp(per_node / std::max(1, ranks.stride), 1, ranks.size);
  return {.nodes = (ranks.size + on_each - 1) / on_each, .per_node = on_each, .fewest = on_each};
}

/// Of all groups of the job, the one with the fewest ways out of a node, and of those the one on most nodes.
Placement worst_placement(const Cluster& cluster, Ranks ranks) {
  const int per_node = cluster.per_node;
  const std::int64_t all = ranks.of;
  if (cluster.has_segments || all <= per_node) return even_placement(per_node, ranks);
  const std::int64_t stride = std::max(1, ranks.stride);
  const std::int64_t block = stride * ranks.size;
  const std::int64_t last_first = all - span_of(ranks);
  Placement worst = placement(per_node, ranks, 0);
  // Blocks of groups come to stand in the same places again, and so do the groups of a block.
  const std::int64_t repeat = std::lcm(block, std::int64_t{per_node});
  for (std::int64_t start = 0; start < repeat && start <= last_first; start += block) {
    for (std::int64_t i = 0; i < std::min<std::int64_t>(stride, per_node) && start + i <= last_first; ++i) {
      const Placement found = placement(per_node, ranks, (start + i) % per_node);
      if (found.nodes == 1) continue;
      const bool is_worse = worst.nodes == 1 || found.fewest < worst.fewest ||
                            (found.fewest == worst.fewest && found.nodes > worst.nodes);
      if (is_worse) worst = found;
    }
  }
  return worst;
}

/// A ring is bound by the slowest of its links.
struct Path {
  const LinkLevel* inside = nullptr;  ///< that of the cluster, or its bridge
  double byte_per_s = 0;
  int nodes = 1;     ///< that the ranks stand in
  int per_node = 1;  ///< of the ranks
};

bool has_bridge(const Cluster& cluster, Ranks ranks) { return cluster.pair && span_of(ranks) <= 2; }

Path path_of(const Cluster& cluster, Ranks ranks) {
  const Placement worst = worst_placement(cluster, ranks);
  Path path{.inside = has_bridge(cluster, ranks) ? &*cluster.pair : &cluster.inside,
            .nodes = worst.nodes,
            .per_node = worst.per_node};
  const double inside = path.inside->byte_per_s * path.inside->share;
  const double between = cluster.between.byte_per_s * cluster.between.share * worst.fewest;
  path.byte_per_s = path.nodes == 1 ? inside : path.per_node == 1 ? between : std::min(inside, between);
  return path;
}

double rounds_of(Collective kind) { return kind == Collective::all_reduce ? 2 : 1; }

/// That of the fewest ranks that are enough, or of the most that were measured; null for none.
const MeasuredRing* measured_ring(const LinkLevel& inside, Collective kind, int ranks) {
  const MeasuredRing* found = nullptr;
  for (const MeasuredRing& ring : inside.measured) {
    if (!ring.seconds.contains(kind)) continue;
    found = &ring;
    if (ring.ranks >= ranks) break;
  }
  return found;
}

/// A ring within a node: as measured, or by the bandwidth. A slower link does of fewer bytes in the same time
/// what the measured one does. With more ranks than were measured there are further steps, and links, which
/// each go one way, reach `share`: each byte takes that much less time than the last of what was measured.
double inside_seconds(const LinkLevel& inside, Collective kind, double traffic, int ranks) {
  const double rounds = rounds_of(kind);
  const MeasuredRing* const ring = measured_ring(inside, kind, ranks);
  if (ring == nullptr)
    return inside.base_s + rounds * (ranks - 1) * inside.step_s +
           traffic / (inside.byte_per_s * inside.share);
  const Curve& curve = ring->seconds.at(kind);
  const double as_measured = traffic * inside.measured_byte_per_s / inside.byte_per_s;
  const auto [least, least_s] = curve.front();
  const int steps = std::min(ranks, ring->ranks) - 1;
  const double further_s = rounds * (ranks - 1 - steps) * inside.step_s;
  const double start_s = std::min(inside.base_s + rounds * steps * inside.step_s, least_s);
  if (as_measured < least) return further_s + start_s + (least_s - start_s) * as_measured / least;
  const double bytes_s = seconds_at(curve, as_measured);
  if (ranks <= ring->ranks) return bytes_s;
  const auto [most, most_s] = curve.back();
  const double saved_s = std::max(0.0, most_s / most - 1 / (inside.measured_byte_per_s * inside.share));
  return further_s + std::max(start_s, bytes_s - saved_s * as_measured);
}

double ring_seconds(const Cluster& cluster, const Path& path, Collective kind, double traffic, int size) {
  const double rounds = rounds_of(kind);
  const LinkLevel& inside = *path.inside;
  if (path.nodes == 1) return inside_seconds(inside, kind, traffic, size);
  // Every node is left once a round; the steps within one node are in the time of its ring.
  const double steps_s = rounds * (path.per_node - 1) * inside.step_s;
  const double others_s =
      rounds * (size - path.nodes) * inside.step_s - steps_s + rounds * path.nodes * cluster.between.step_s;
  const double network_s = inside.base_s + steps_s + traffic / path.byte_per_s;
  if (path.per_node == 1) return others_s + network_s;
  return others_s + std::max(inside_seconds(inside, kind, traffic, path.per_node), network_s);
}

/// Double binary trees between nodes, chains within: fewer steps, and a little less bandwidth.
double tree_seconds(const Cluster& cluster, const Path& path, double traffic) {
  constexpr double kTreeShare = 0.85;
  // What was measured within a node is the better of the two already.
  const bool is_measured = measured_ring(*path.inside, Collective::all_reduce, path.per_node) != nullptr;
  if (path.nodes == 1 && is_measured) return std::numeric_limits<double>::infinity();
  const double steps = (path.per_node - 1) * path.inside->tree_step_s +
                       std::ceil(std::log2(path.nodes)) * cluster.between.tree_step_s;
  const double bytes_s = path.inside->base_s + traffic / (path.byte_per_s * kTreeShare);
  if (!is_measured || path.per_node == 1) return 2 * steps + bytes_s;
  const double ring_steps_s = rounds_of(Collective::all_reduce) * (path.per_node - 2) * path.inside->step_s;
  return 2 * steps +
         std::max(bytes_s, inside_seconds(*path.inside, Collective::all_reduce, traffic, path.per_node) -
                               ring_steps_s);
}

}  // namespace

double seconds_at(const Curve& curve, double bytes) {
  if (curve.empty()) return 0;
  if (bytes <= curve.front().first) return curve.front().second;
  const auto [most, longest] = curve.back();
  if (bytes >= most) return longest * bytes / most;
  const auto above = std::ranges::lower_bound(curve, bytes, {}, &std::pair<double, double>::first);
  const auto below = above - 1;
  const double share = std::log(bytes / below->first) / std::log(above->first / below->first);
  return below->second * std::pow(above->second / below->second, share);
}

std::string_view name_of(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::point_to_point:
      return "send";
    case Collective::pass_on:
      return "pass_on";
  }
  return "?";
}

Cluster cluster_of(const devices::Device& device, int per_node, double network_byte_per_s,
                   Launches launches) {
  const Json& clusters = links_json().at("clusters");
  const Json& entry =
      clusters.contains(device.key) ? clusters.at(device.key) : links_json().at("other_clusters");
  const Json& slow = links_json().at("beside_collective");
  const int usual = entry.at("gpus_per_node");
  Cluster cluster{.per_node = per_node > 0 ? per_node : usual,
                  .has_segments = entry.value("segments", false) && (per_node <= 0 || per_node == usual),
                  .spread = links_json().at("spread"),
                  .matmul_slowdown = slow.at("matmul"),
                  .other_slowdown = slow.at("other"),
                  .chip_spread = links_json().at("chips").at("spread"),
                  .buffer_bytes = links_json().at("buffer_bytes").at("per_group"),
                  .source = entry.at("source")};
  if (!device.links.empty()) {
    const auto level = [launches](const devices::Link& link) {
      LinkLevel made = level_of(link.name.starts_with("PCIe") ? "pcie" : "nvlink", link.byte_per_s, launches);
      made.name = link.name;
      return made;
    };
    const bool is_bridged = device.links.front().name.ends_with("(pair)") && device.links.size() > 1;
    if (is_bridged) cluster.pair = level(device.links.front());
    cluster.inside = level(device.links[is_bridged ? 1 : 0]);
  }
  cluster.between = level_of(
      "network", network_byte_per_s > 0 ? network_byte_per_s : entry.at("network_byte_per_s").get<double>(),
      launches);
  return cluster;
}

void require_links(const Cluster& cluster, const devices::Device& device, int ranks) {
  if (ranks == 1 || cluster.per_node == 1 || cluster.inside.byte_per_s > 0) return;
  throw core::UsageError(fmt::format(
      "no link between devices of {} is known: add 'links' to its catalog, or say --per-node 1", device.key));
}

void require_peers(const Cluster& cluster, int ranks, int data_ranks) {
  const int nodes = (ranks + cluster.per_node - 1) / cluster.per_node;
  if (nodes == 1 && data_ranks <= kMostPeers) return;
  const std::string split = nodes > 1
                                ? fmt::format("{} ranks on {} hosts of {}", ranks, nodes, cluster.per_node)
                                : fmt::format("{} data-parallel ranks", data_ranks);
  throw core::Unavailable(
      fmt::format("--collectives peer-memory is within one host, for at most {} ranks that map each other's "
                  "memory, not for {}",
                  kMostPeers, split));
}

double slowest_clock_share(const Cluster& cluster, int devices) {
  if (devices <= 1) return 1;
  // The mean of the largest of n, from the distribution that it tends to (Gumbel's).
  const double log_n = std::log(devices);
  const double scale = std::sqrt(2 * log_n);
  const double largest =
      scale + (std::numbers::egamma - (std::log(log_n) + std::log(4 * std::numbers::pi)) / 2) / scale;
  return 1 / (1 + cluster.chip_spread * largest);
}

const LinkLevel& link_of(const Cluster& cluster, Ranks ranks) {
  // Of ranks in several nodes one link at least is the network, and they go at its pace.
  const Path path = path_of(cluster, ranks);
  return path.nodes > 1 ? cluster.between : *path.inside;
}

double collective_seconds(const Cluster& cluster, Collective kind, double bytes, Ranks ranks) {
  if (ranks.size <= 1) return 0;
  const Path path = path_of(cluster, ranks);
  const double n = ranks.size;
  switch (kind) {
    case Collective::all_reduce: {
      const double traffic = sent_share(kind, ranks.size) * bytes;
      return std::min(ring_seconds(cluster, path, kind, traffic, ranks.size),
                      tree_seconds(cluster, path, traffic));
    }
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return ring_seconds(cluster, path, kind, sent_share(kind, ranks.size) * bytes, ranks.size);
    case Collective::all_to_all: {
      const double inside_s = inside_seconds(*path.inside, Collective::all_gather,
                                             (path.per_node - 1) / n * bytes, path.per_node);
      if (path.nodes == 1) return inside_s;
      const double network_s =
          path.inside->base_s + cluster.between.step_s +
          (n - path.per_node) / n * bytes / (cluster.between.byte_per_s * cluster.between.share);
      return path.per_node == 1 ? network_s : std::max(inside_s, network_s);
    }
    case Collective::point_to_point:
    case Collective::pass_on:
      break;
  }
  const LinkLevel& link = path.nodes > 1 ? cluster.between : *path.inside;
  return path.inside->base_s + link.step_s + bytes / (link.byte_per_s * link.share);
}

double sent_share(Collective kind, int ranks) {
  if (kind == Collective::point_to_point || kind == Collective::pass_on) return 1;
  const double others = (ranks - 1.0) / ranks;
  return kind == Collective::all_reduce ? 2 * others : others;
}

double share_sent_once(const Cluster& cluster, Ranks ranks, double active) {
  const Path path = path_of(cluster, ranks);
  const double nodes = path.nodes;
  if (nodes <= 1) return 1;
  const double each = active * (ranks.size - path.per_node) / ranks.size;
  return each > 0 ? std::min(1.0, (nodes - 1) * (1 - std::pow(1 - 1 / nodes, active)) / each) : 1;
}

Ranks ranks_of(program::Group group, const compile::Sharding& sharding) {
  const auto ranks = [of = sharding.ranks()](int size, int stride) {
    return Ranks{.size = size, .stride = stride, .of = of};
  };
  const int stage = sharding.tensor * sharding.data_ranks();
  using program::Group;
  switch (group) {
    case Group::tensor:
      return ranks(sharding.tensor, 1);
    case Group::data:
      return ranks(sharding.data_ranks(), sharding.tensor);
    case Group::context:
      return ranks(sharding.context, sharding.tensor);
    case Group::expert:
      return ranks(sharding.expert, sharding.expert_tensor);
    case Group::copies:
      return ranks(sharding.expert_copies(), sharding.expert * sharding.expert_tensor);
    case Group::pipeline:
      return ranks(sharding.pipeline, stage);
    case Group::tied:
      return ranks(2, stage * std::max(1, sharding.pipeline - 1));
  }
  return {};
}

}  // namespace rooflm::perfmodel
