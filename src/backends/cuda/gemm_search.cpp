// Autotuning: finds the fastest cuBLASLt algorithm for one matmul.
#include "backends/cuda/gemm_search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "backends/cuda/check.h"
#include "backends/cuda/gemm_algorithm.h"
#include "core/rng.h"

namespace rooflm::backends::cuda {
namespace {

using Algorithm = cublasLtMatmulAlgo_t;

/// Proposals per query.
constexpr std::size_t kProposals = 24;
/// Multiprocessor limits given to cuBLASLt to get other proposals; 0: no limit.
constexpr std::array kPartsOfDevice = {0, 128, 120, 112, 104, 96, 88, 80, 66};
/// Shorter matmuls gain nothing from variations.
constexpr double kLongS = 25e-6;
constexpr double kMostSearchS = 1.0;
/// A first short timing may exceed the fastest by this factor.
constexpr double kPromising = 1.05;
constexpr int kFewRuns = 1;
constexpr int kManyRuns = 6;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_same(const Algorithm& x, const Algorithm& y) {
  return std::equal(std::begin(x.data), std::end(x.data), std::begin(y.data));
}

void add_new(std::vector<Algorithm>& known, const Algorithm& algorithm) {
  const bool is_known = std::any_of(known.begin(), known.end(),
                                    [&](const Algorithm& other) { return is_same(other, algorithm); });
  if (!is_known) known.push_back(algorithm);
}

/// Proposals for a device with so many multiprocessors.
std::vector<Algorithm> propose_for(const LtMatmul& p, std::int32_t multiprocessors) {
  const auto tell = [&](std::int32_t count) {
    check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &count, sizeof count),
          "looking for algorithms");
  };
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> found{};
  int count = 0;
  tell(multiprocessors);
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.a, p.b, p.c, p.c, p.preference,
                                     static_cast<int>(found.size()), found.data(), &count);
  tell(0);
  std::vector<Algorithm> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < count; ++i) {
    const auto& proposal = found.at(static_cast<std::size_t>(i));
    if (proposal.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(proposal.algo);
  }
  return algorithms;
}

/// Random numbers below a bound, with a fixed seed.
class Draw {
 public:
  std::uint32_t below(std::size_t bound) {
    return core::philox(0, 0, counter_++)[0] % static_cast<std::uint32_t>(std::max<std::size_t>(bound, 1));
  }

 private:
  std::uint64_t counter_ = 0;
};

/// The supported values of a property of an algorithm, such as its tiles.
std::vector<std::uint32_t> choices(const Algorithm& algorithm, cublasLtMatmulAlgoCapAttributes_t list) {
  std::size_t bytes = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, list, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS)
    return {};
  std::vector<std::uint32_t> values(bytes / sizeof(std::uint32_t));
  if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, list, values.data(), bytes, &bytes) !=
      CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  return values;
}

/// The algorithm with another tile, cluster, variant or tile order; nullopt if cuBLASLt does not support it.
std::optional<Algorithm> vary(const LtMatmul& p, Algorithm algorithm, Draw& draw) {
  constexpr std::array kClusters = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                    CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_2x2x1,
                                    CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x4x1};
  const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  bool valid = true;
  const auto tiles = choices(algorithm, CUBLASLT_ALGO_CAP_TILE_IDS);
  if (!tiles.empty() && draw.below(2) == 0) {
    valid = valid && set(CUBLASLT_ALGO_CONFIG_TILE_ID, tiles.at(draw.below(tiles.size())));
  }
  if (draw.below(2) == 0) {
    valid = valid && set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                         static_cast<std::uint16_t>(kClusters.at(draw.below(kClusters.size()))));
  }
  std::uint32_t most = 0;
  std::size_t bytes = 0;
  const bool has_variants =
      cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &most, sizeof most,
                                        &bytes) == CUBLAS_STATUS_SUCCESS;
  if (has_variants && draw.below(2) == 0) {
    valid = valid && set(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, draw.below(std::size_t{most} + 1));
  }
  if (draw.below(2) == 0) valid = valid && set(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, draw.below(2));
  if (!valid || !is_possible(p, algorithm)) return std::nullopt;
  return algorithm;
}

/// The fastest algorithm so far.
class Best {
 public:
  Best(const TimeMatmul& time, const Algorithm& first) : time_(&time), algorithm_(first) {}
  void add(const Algorithm& algorithm) {
    if ((*time_)(algorithm, kFewRuns) > kPromising * seconds_) return;
    const double elapsed = (*time_)(algorithm, kManyRuns);
    if (elapsed >= seconds_) return;
    seconds_ = elapsed;
    algorithm_ = algorithm;
  }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] const Algorithm& algorithm() const { return algorithm_; }

 private:
  const TimeMatmul* time_;
  double seconds_ = std::numeric_limits<double>::infinity();
  Algorithm algorithm_;
};

}  // namespace

bool is_possible(const LtMatmul& matmul, const Algorithm& algorithm) {
  const auto bytes = workspace_of(matmul, algorithm);
  return bytes && *bytes <= matmul.workspace_bytes;
}

std::vector<Algorithm> propose(const LtMatmul& matmul) { return propose_for(matmul, 0); }

Algorithm find_fastest(const LtMatmul& matmul, const std::vector<Algorithm>& proposals, bool varies,
                       const TimeMatmul& time) {
  std::vector<Algorithm> known = proposals;
  for (const std::int32_t part : kPartsOfDevice) {
    for (const Algorithm& algorithm : propose_for(matmul, part)) add_new(known, algorithm);
  }
  Best best(time, known.front());
  for (const Algorithm& algorithm : known) best.add(algorithm);
  if (!varies || best.seconds() < kLongS) return best.algorithm();
  Draw draw;
  const double end_s = now_s() + kMostSearchS;
  while (now_s() < end_s) {
    const bool climbs = draw.below(2) == 0;
    const auto varied = vary(matmul, climbs ? best.algorithm() : known.at(draw.below(known.size())), draw);
    if (varied) best.add(*varied);
  }
  return best.algorithm();
}

}  // namespace rooflm::backends::cuda
