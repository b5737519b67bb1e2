// Collectives of a cluster against their formulas and what was measured.
#include "perfmodel/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"
#include "perfmodel/framework.h"

namespace rooflm {
namespace {

using perfmodel::Collective;

/// As the backend: backends/cuda/nccl_ways.cpp and peer_memory.cpp.
TEST(Cluster, PeerMemoryIsWithinOneHost) {
  const auto device = devices::find_device("h100-sxm");
  EXPECT_NO_THROW(perfmodel::require_peers(perfmodel::cluster_of(device), 8, 8));
  EXPECT_THROW(perfmodel::require_peers(perfmodel::cluster_of(device), 16, 16), core::Unavailable);
  EXPECT_THROW(perfmodel::require_peers(perfmodel::cluster_of(device), 16, 2), core::Unavailable);
  EXPECT_NO_THROW(perfmodel::require_peers(perfmodel::cluster_of(device, 16), 16, 8));
  EXPECT_THROW(perfmodel::require_peers(perfmodel::cluster_of(device, 16), 16, 16), core::Unavailable);
}

TEST(Cluster, CurvesGoThroughTheirPoints) {
  const perfmodel::Curve curve = {{1e6, 2e-6}, {1e8, 50e-6}};
  EXPECT_DOUBLE_EQ(perfmodel::seconds_at(curve, 1), 2e-6);
  EXPECT_DOUBLE_EQ(perfmodel::seconds_at(curve, 1e6), 2e-6);
  EXPECT_NEAR(perfmodel::seconds_at(curve, 1e7), std::sqrt(2e-6 * 50e-6), 1e-12);
  EXPECT_DOUBLE_EQ(perfmodel::seconds_at(curve, 4e8), 200e-6);
}

/// 100 GB/s within nodes of two, 10 GB/s per device between them; steps cost nothing.
perfmodel::Cluster by_hand() {
  perfmodel::Cluster cluster;
  cluster.per_node = 2;
  cluster.inside.byte_per_s = 100e9;
  cluster.between.byte_per_s = 10e9;
  return cluster;
}

TEST(Collectives, RingsMoveWhatTheFormulaSays) {
  auto cluster = by_hand();
  EXPECT_DOUBLE_EQ(perfmodel::collective_seconds(cluster, Collective::all_reduce, 1e9, {.size = 1}), 0);
  // 2 (n-1)/n = 1 of 1 GB at 100 GB/s.
  EXPECT_NEAR(perfmodel::collective_seconds(cluster, Collective::all_reduce, 1e9, {.size = 2}), 10e-3, 1e-12);
  // Four ranks on two nodes leave each by two networks: 1.5 GB at 20 GB/s.
  EXPECT_NEAR(perfmodel::collective_seconds(cluster, Collective::all_reduce, 1e9, {.size = 4}), 75e-3, 1e-12);
  // One rank on each node: 0.5 GB of a gather at 10 GB/s.
  EXPECT_NEAR(perfmodel::collective_seconds(cluster, Collective::all_gather, 1e9, {.size = 2, .stride = 2}),
              50e-3, 1e-12);
}

TEST(Collectives, SmallOnesAreBoundByTheirSteps) {
  auto cluster = by_hand();
  cluster.per_node = 8;
  cluster.inside.base_s = 5e-6;
  cluster.inside.step_s = 2e-6;
  EXPECT_NEAR(perfmodel::collective_seconds(cluster, Collective::all_gather, 0, {.size = 8}), 5e-6 + 7 * 2e-6,
              1e-12);
  // A tree has no steps of its own here and wins.
  EXPECT_NEAR(perfmodel::collective_seconds(cluster, Collective::all_reduce, 0, {.size = 8}), 5e-6, 1e-12);
}

TEST(Collectives, TakeWhatWasMeasured) {
  const auto h200 = perfmodel::cluster_of(devices::find_device("h200"));
  const auto a100 = perfmodel::cluster_of(devices::find_device("a100-sxm"));
  const perfmodel::Curve& two = h200.inside.measured.at(0).seconds.at(Collective::all_gather);
  const perfmodel::Curve& four = h200.inside.measured.at(1).seconds.at(Collective::all_gather);
  const auto& [bytes, seconds] = two.at(2);
  // Of two ranks each sends half of the whole.
  const auto gather = [](const perfmodel::Cluster& cluster, double whole, int ranks) {
    return perfmodel::collective_seconds(cluster, Collective::all_gather, whole, {.size = ranks});
  };
  EXPECT_DOUBLE_EQ(gather(h200, 2 * bytes, 2), seconds);
  for (const auto& [sent, time_s] : four) EXPECT_DOUBLE_EQ(gather(h200, 4.0 / 3 * sent, 4), time_s);
  EXPECT_DOUBLE_EQ(gather(h200, 3.0 / 2 * four.at(2).first, 3), four.at(2).second)
      << "as the next larger ring";
  // More ranks reach `share` of the link with large messages.
  const double most = four.back().first;
  EXPECT_NEAR(gather(h200, 8.0 / 7 * most, 8), most / (450e9 * 0.81) + 4 * h200.inside.step_s, 1e-9);
  EXPECT_LT(gather(h200, 8.0 / 7 * four.at(2).first, 8), four.at(2).second + 4 * h200.inside.step_s);
  // NVLink 3 does 300 of 450 GB/s.
  EXPECT_NEAR(gather(a100, 2 * bytes * 300 / 450, 2), seconds, 1e-12);
  // Over nodes the network binds: 1 GB and 8 ports of 50 GB/s each.
  const double over_nodes = gather(h200, 1e9, 16);
  EXPECT_GT(over_nodes, 15.0 / 16 * 1e9 / (8 * 50e9));
  EXPECT_GE(over_nodes, 15.0 / 16 * 1e9 / (450e9 * h200.inside.share));
}

TEST(Collectives, TakeLongerWhereTheHostStartsThem) {
  const auto& device = devices::find_device("h200");
  const auto launched = perfmodel::cluster_of(device, 0, 0, perfmodel::Launches::launched);
  const auto replayed = perfmodel::cluster_of(device);
  EXPECT_EQ(perfmodel::launches_of(perfmodel::find_framework("rooflm-fused")), perfmodel::Launches::replayed);
  EXPECT_EQ(perfmodel::launches_of(perfmodel::find_framework("torchtitan")), perfmodel::Launches::launched);
  for (const auto kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const auto times = [&](double bytes) {
      return collective_seconds(launched, kind, bytes, {.size = 4}) /
             collective_seconds(replayed, kind, bytes, {.size = 4});
    };
    EXPECT_GT(times(1 << 20), 2);
    EXPECT_NEAR(times(1 << 30), 1, 0.1);
  }
}

TEST(Collectives, SmallMessagesTakeNoLessThanTheirStepsOrTheShortestMeasured) {
  const auto cluster = perfmodel::cluster_of(devices::find_device("h200"));
  for (const auto kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const double shortest = cluster.inside.measured.back().seconds.at(kind).front().second;
    double before = 0;
    for (const double bytes : {0.0, 1e3, 1e6, 2.1e6, 1e7, 1e9}) {
      const double seconds = perfmodel::collective_seconds(cluster, kind, bytes, {.size = 4});
      EXPECT_GE(seconds, before);
      EXPECT_GE(seconds, std::min(shortest, cluster.inside.base_s + 3 * cluster.inside.step_s));
      before = seconds;
    }
  }
}

TEST(Collectives, AllRanksWaitForTheSlowestDevice) {
  const auto cluster = perfmodel::cluster_of(devices::find_device("h100-sxm"));
  EXPECT_EQ(perfmodel::slowest_clock_share(cluster, 1), 1);
  // The mean of the largest of 8 and of 1,024 normal numbers is 1.42 and 3.24 standard deviations.
  EXPECT_NEAR(1 / perfmodel::slowest_clock_share(cluster, 8) - 1, 1.42 * cluster.chip_spread, 0.002);
  EXPECT_NEAR(1 / perfmodel::slowest_clock_share(cluster, 1024) - 1, 3.24 * cluster.chip_spread, 0.002);
}

}  // namespace
}  // namespace rooflm
