// How the devices of a run are joined, and how long a collective takes there.
#include "perfmodel/cluster.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "perfmodel/planning_text.h"

namespace rooflm::perfmodel {
namespace {

using Json = nlohmann::json;

const Json& links_json() {
  static const Json kData = Json::parse(links_text());
  return kData;
}

LinkLevel level_of(const std::string& name, double byte_per_s) {
  const Json& json = links_json().at("levels").at(name);
  return {.name = name,
          .byte_per_s = byte_per_s,
          .share = json.at("share"),
          .base_s = json.at("base_s"),
          .step_s = json.at("step_s"),
          .tree_step_s = json.at("tree_step_s")};
}

/// A ring is bound by the slowest of its links.
struct Path {
  double byte_per_s = 0;
  int nodes = 1;     ///< that the ranks stand in
  int per_node = 1;  ///< of the ranks
};

Path path_of(const Cluster& cluster, Ranks ranks) {
  Path path;
  path.per_node = std::clamp(cluster.per_node / std::max(1, ranks.stride), 1, ranks.size);
  path.nodes = (ranks.size + path.per_node - 1) / path.per_node;
  const double inside = cluster.inside.byte_per_s * cluster.inside.share;
  const double between = cluster.between.byte_per_s * cluster.between.share * path.per_node;
  path.byte_per_s = path.nodes == 1 ? inside : path.per_node == 1 ? between : std::min(inside, between);
  return path;
}

double ring_seconds(const Cluster& cluster, const Path& path, double traffic, double rounds, int size) {
  const double outer = path.nodes > 1 ? rounds * path.nodes : 0;
  const double inner = rounds * (size - 1) - (path.nodes > 1 ? rounds * (path.nodes - 1) : 0);
  return cluster.inside.base_s + inner * cluster.inside.step_s + outer * cluster.between.step_s +
         traffic / path.byte_per_s;
}

/// Double binary trees between nodes, chains within: fewer steps, and a little less bandwidth.
double tree_seconds(const Cluster& cluster, const Path& path, double traffic) {
  constexpr double kTreeShare = 0.85;
  const double steps = (path.per_node - 1) * cluster.inside.tree_step_s +
                       std::ceil(std::log2(path.nodes)) * cluster.between.tree_step_s;
  return cluster.inside.base_s + 2 * steps + traffic / (path.byte_per_s * kTreeShare);
}

}  // namespace

std::string_view name_of(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::point_to_point:
      return "send";
    case Collective::pass_on:
      return "pass_on";
  }
  return "?";
}

Cluster cluster_of(const devices::Device& device, int per_node, double network_byte_per_s) {
  const Json& clusters = links_json().at("clusters");
  const Json& entry =
      clusters.contains(device.key) ? clusters.at(device.key) : links_json().at("other_clusters");
  const Json& slow = links_json().at("beside_collective");
  Cluster cluster{.per_node = per_node > 0 ? per_node : entry.at("gpus_per_node").get<int>(),
                  .spread = links_json().at("spread"),
                  .matmul_slowdown = slow.at("matmul"),
                  .other_slowdown = slow.at("other"),
                  .buffer_bytes = links_json().at("buffer_bytes").at("per_group"),
                  .source = entry.at("source")};
  if (!device.links.empty()) {
    const devices::Link& link = device.links.front();
    cluster.inside = level_of(link.name.starts_with("PCIe") ? "pcie" : "nvlink", link.byte_per_s);
    cluster.inside.name = link.name;
  }
  cluster.between = level_of(
      "network", network_byte_per_s > 0 ? network_byte_per_s : entry.at("network_byte_per_s").get<double>());
  return cluster;
}

double collective_seconds(const Cluster& cluster, Collective kind, double bytes, Ranks ranks) {
  if (ranks.size <= 1) return 0;
  const Path path = path_of(cluster, ranks);
  const double n = ranks.size;
  switch (kind) {
    case Collective::all_reduce: {
      const double traffic = 2 * (n - 1) / n * bytes;
      return std::min(ring_seconds(cluster, path, traffic, 2, ranks.size),
                      tree_seconds(cluster, path, traffic));
    }
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return ring_seconds(cluster, path, (n - 1) / n * bytes, 1, ranks.size);
    case Collective::point_to_point:
    case Collective::pass_on:
      break;
  }
  // Of a ring that leaves the node one link at least is the network.
  const int reach = kind == Collective::pass_on ? ranks.size * ranks.stride - 1 : ranks.stride;
  const LinkLevel& link = reach >= cluster.per_node ? cluster.between : cluster.inside;
  return cluster.inside.base_s + link.step_s + bytes / (link.byte_per_s * link.share);
}

}  // namespace rooflm::perfmodel
