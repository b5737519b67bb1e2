// Experts on an NVIDIA GPU against the processor's reference: unequal loads, experts without rows, one with
// all, sizes that fill no tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "compile/passes/cast.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::DType;
using program::Attributes;
using program::TensorId;
using Values = std::vector<double>;

constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16};

/// Sums of fp32 in another order; of 16 bits, the same number may be rounded the other way.
double tolerance_of(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-7;
  return dtype == DType::f16 ? 0x1p-10 : 1e-4;
}

/// Of terms as large as what the op reads, in fp32, whose sum may be as small as you like.
constexpr double kCancelled = 0x1p-22;

double largest(const Values& values) {
  double most = 0;
  for (const double x : values) most = std::max(most, std::abs(x));
  return most;
}

class CudaExperts : public testing::Test {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
    gpu_ = backends::cuda::make_cuda_backend(0, {});
  }

  /// Runs each op of the case and of its gradient on both, on the reference's contents.
  void expect_as_reference(Case c, DType dtype) {
    append_backward(c);
    passes::cast(c.program, dtype);
    OpRunner expected(c, *cpu_);
    OpRunner actual(c, *gpu_);
    for (std::size_t i = 0; i < c.program.ops.size(); ++i) {
      actual.copy_from(expected);
      expected.run(i);
      actual.run(i);
      double read = 0;
      for (const TensorId id : c.program.ops[i].inputs) {
        if (id != program::kNone && c.program.tensor(id).dtype != DType::i32)
          read = std::max(read, largest(expected.read(id)));
      }
      for (const TensorId id : c.program.ops[i].outputs) {
        const Values right = expected.read(id);
        const Values found = actual.read(id);
        const double most = largest(right);
        const double allowed = tolerance_of(c.program.tensor(id).dtype);
        for (std::size_t at = 0; at < right.size(); ++at) {
          const bool is_id = c.program.tensor(id).dtype == DType::i32;
          ASSERT_LE(std::abs(found[at] - right[at]),
                    is_id ? 0 : (allowed * (most + std::abs(right[at]))) + (kCancelled * read))
              << c.name << ", " << c.program.ops[i].def->name << "[" << at << "]: " << found[at] << " for "
              << right[at];
        }
      }
    }
  }

 private:
  std::unique_ptr<backends::Backend> cpu_ = backends::make_cpu_backend(backends::CpuKernels::reference, 2);
  std::unique_ptr<backends::Backend> gpu_;
};

/// Rows of `experts` that add up to `rows`.
struct Load {
  std::string name;
  std::function<Values(std::int64_t rows, std::int64_t experts)> offsets;
};

Values offsets_of(std::int64_t rows, std::int64_t experts, const std::function<double(std::int64_t)>& share) {
  double all = 0;
  for (std::int64_t e = 0; e < experts; ++e) all += share(e);
  Values offsets{0};
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    sum += share(e);
    offsets.push_back(std::floor(number(rows) * sum / all));
  }
  return offsets;
}

const std::vector<Load>& loads() {
  static const std::vector<Load> kLoads{
      {"equal", [](auto rows, auto experts) { return offsets_of(rows, experts, [](auto) { return 1; }); }},
      {"unequal",
       [](auto rows, auto experts) {
         return offsets_of(rows, experts, [](std::int64_t e) { return number(e * e % 7 + 1); });
       }},
      {"idle",
       [](auto rows, auto experts) {  // the first, the last and every third
         return offsets_of(rows, experts,
                           [=](std::int64_t e) { return e % 3 == 0 || e + 1 == experts ? 0.0 : number(e); });
       }},
      {"all to one", [](auto rows, auto experts) {
         return offsets_of(rows, experts, [=](std::int64_t e) { return e == experts / 2 ? 1.0 : 0.0; });
       }}};
  return kLoads;
}

struct GroupedSizes {
  std::int64_t experts, rows, n, k;
};

/// Odd ones; whole and cut tiles of 64, 128 and 256; few rows for many experts; more experts than lanes.
constexpr GroupedSizes kSizes[] = {{5, 333, 67, 37}, {4, 256, 256, 128}, {4, 500, 264, 136},
                                   {16, 3, 128, 64}, {70, 700, 72, 64},  {3, 300, 520, 328}};

TEST_F(CudaExperts, GroupedMatmulsAndTheirGradients) {
  for (const GroupedSizes& s : kSizes) {
    for (const Load& load : loads()) {
      for (const bool trans_b : {true, false}) {
        for (const DType dtype : kDtypes) {
          if (dtype == DType::f16 && !trans_b) continue;  // as bf16
          CaseWriter w(load.name + ", " + std::to_string(s.experts) + " experts, " + std::to_string(s.rows) +
                       " rows" + (trans_b ? ", x W^T, " : ", x W, ") + std::string(core::name_of(dtype)));
          const TensorId offsets = w.ids({s.experts + 1}, s.rows + 1);
          w.fix(offsets, load.offsets(s.rows, s.experts));
          const TensorId x = w.activation({s.rows, s.k});
          const TensorId weight =
              w.weight(trans_b ? core::Shape{s.experts, s.n, s.k} : core::Shape{s.experts, s.k, s.n});
          const TensorId y = w.op(ops::kGroupedMatmul, {x, weight, offsets},
                                  ops::grouped_matmul(s.experts, s.rows, s.n, s.k, trans_b))[0];
          expect_as_reference(w.done({y}), dtype);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// The second gradient is added to the first.
TEST_F(CudaExperts, GradientsOfATiedWeightAccumulate) {
  for (const DType dtype : kDtypes) {
    for (const Load& load : loads()) {
      constexpr std::int64_t kCount = 6, kRows = 300, kWidth = 136;
      CaseWriter w("tied, " + load.name);
      const TensorId offsets = w.ids({kCount + 1}, kRows + 1);
      w.fix(offsets, load.offsets(kRows, kCount));
      const TensorId weight = w.weight({kCount, kWidth, kWidth});
      const Attributes attrs = ops::grouped_matmul(kCount, kRows, kWidth, kWidth, true);
      const TensorId y =
          w.op(ops::kGroupedMatmul, {w.activation({kRows, kWidth}), weight, offsets}, attrs)[0];
      expect_as_reference(w.done({y, w.op(ops::kGroupedMatmul, {y, weight, offsets}, attrs)[0]}), dtype);
      if (HasFatalFailure()) return;
    }
  }
}

struct LayerSizes {
  std::int64_t tokens, experts, active, cols;
};

/// More choices than a warp sorts, more experts than lanes, rows of odd length, one token, all experts.
constexpr LayerSizes kLayers[] = {{1, 8, 2, 64}, {613, 200, 8, 72}, {257, 3, 3, 37}, {100, 1, 1, 8}};

/// The rows of a token come back to it: choice, sort, copies, sums, and their gradients, with the losses of
/// the router.
TEST_F(CudaExperts, ChoiceSortCopiesAndSums) {
  for (const LayerSizes& s : kLayers) {
    for (const bool sigmoid : {false, true}) {
      for (const DType dtype : kDtypes) {
        CaseWriter w(std::to_string(s.tokens) + " tokens, " + std::to_string(s.active) + " of " +
                     std::to_string(s.experts) + (sigmoid ? ", sigmoids, " : ", softmax, ") +
                     std::string(core::name_of(dtype)));
        const Attributes places{{"experts", s.experts}, {"active", s.active}};
        Attributes routing = places;
        routing.set("sigmoid", sigmoid);
        routing.set("normalised", sigmoid);
        routing.set("scale", 2.5);
        routing.set("balance", 0.3);
        routing.set("z_loss", 0.1);
        routing.set("share", 0.5);
        const TensorId x = w.activation({s.tokens, s.cols});
        std::vector<TensorId> inputs{w.activation({s.tokens, s.experts})};
        if (sigmoid) inputs.push_back(w.weight({s.experts}));  // the bias
        const auto routed = w.op(ops::kRoute, inputs, routing);
        const auto sorted = w.op(ops::kDispatch, {routed[1]}, places);
        const TensorId rows = w.op(ops::kGatherRows, {x, sorted[0], sorted[1]}, places)[0];
        expect_as_reference(w.done({w.op(ops::kCombine, {rows, routed[0], sorted[1]}, places)[0]}), dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

Attributes choice(std::int64_t experts, std::int64_t active) {
  return {{"experts", experts}, {"active", active}, {"sigmoid", false}, {"normalised", false},
          {"scale", 2.5},       {"balance", 0.3},   {"z_loss", 0.1},    {"share", 0.5}};
}

/// The best groups by the sums of their best scores, with a bias and without; fewer groups than lanes, and
/// more.
TEST_F(CudaExperts, ChoiceByGroups) {
  struct Groups {
    std::int64_t groups, active_groups, best, experts, active;
  };
  for (const Groups& g : {Groups{8, 4, 2, 256, 8}, {3, 2, 1, 15, 4}, {5, 1, 7, 35, 6}, {40, 3, 2, 80, 5}}) {
    for (const bool sigmoid : {false, true}) {
      for (const DType dtype : kDtypes) {
        CaseWriter w(std::to_string(g.groups) + " groups " + std::string(core::name_of(dtype)));
        Attributes routing = choice(g.experts, g.active);
        routing.set("sigmoid", sigmoid);
        routing.set("normalised", sigmoid);
        routing.set("groups", g.groups);
        routing.set("active_groups", g.active_groups);
        routing.set("group_best", g.best);
        std::vector<TensorId> inputs{w.activation({67, g.experts})};
        if (sigmoid) inputs.push_back(w.weight({g.experts}));
        expect_as_reference(w.done({w.op(ops::kRoute, inputs, routing)[0]}), dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaExperts, ChoiceByASparseMixer) {
  for (const std::int64_t experts : {5, 16, 70}) {
    for (const DType dtype : kDtypes) {
      CaseWriter w("mixer of " + std::to_string(experts) + " " + std::string(core::name_of(dtype)));
      Attributes routing = choice(experts, 3);
      routing.set("jitter", 0.2);
      expect_as_reference(w.done({w.op(ops::kRoute, {w.activation({131, experts})}, routing)[0]}), dtype);
      if (HasFatalFailure()) return;
    }
  }
}

/// Weights that scale what experts read, and sums without weights.
TEST_F(CudaExperts, RowsWeighedBeforeExperts) {
  for (const LayerSizes& s : kLayers) {
    for (const DType dtype : kDtypes) {
      CaseWriter w("weighed rows " + std::to_string(s.cols) + " " + std::string(core::name_of(dtype)));
      Attributes places{{"experts", s.experts}, {"active", s.active}};
      const TensorId x = w.activation({s.tokens, s.cols});
      const auto routed =
          w.op(ops::kRoute, {w.activation({s.tokens, s.experts})}, choice(s.experts, s.active));
      const auto sorted = w.op(ops::kDispatch, {routed[1]}, places);
      places.set("weighs_input", true);
      const TensorId rows = w.op(ops::kGatherRows, {x, sorted[0], sorted[1], routed[0]}, places)[0];
      expect_as_reference(w.done({w.op(ops::kCombine, {rows, program::kNone, sorted[1]}, places)[0]}), dtype);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaExperts, BiasesOfAllLoads) {
  for (const GroupedSizes& s : kSizes) {
    for (const Load& load : loads()) {
      for (const DType dtype : kDtypes) {
        CaseWriter w(load.name + ", biases of " + std::to_string(s.n) + " " +
                     std::string(core::name_of(dtype)));
        const TensorId offsets = w.ids({s.experts + 1}, s.rows + 1);
        w.fix(offsets, load.offsets(s.rows, s.experts));
        const TensorId bias = w.weight({s.experts, s.n});
        const TensorId x = w.activation({s.rows, s.n});
        const TensorId once = w.op(ops::kGroupedBiasAdd, {x, bias, offsets}, {})[0];
        expect_as_reference(w.done({w.op(ops::kGroupedBiasAdd, {once, bias, offsets}, {})[0]}), dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaExperts, BiasesThatBalanceAndGates) {
  for (const std::int64_t experts : {5, 300}) {
    CaseWriter w("balance of " + std::to_string(experts));
    std::vector<TensorId> inputs{w.weight({experts})};
    for (const Load& load : loads()) {  // each a micro-batch
      inputs.push_back(w.ids({experts + 1}, 1000));
      w.fix(inputs.back(), load.offsets(999, experts));
    }
    w.op_into(ops::kBalanceBias, inputs, {{"rate", 0.01}}, {inputs[0]});
    expect_as_reference(w.done(), DType::f32);
    if (HasFatalFailure()) return;
  }
  for (const std::int64_t cols : {37, 256, 2056}) {
    for (const DType dtype : kDtypes) {
      CaseWriter w("gates of " + std::to_string(cols) + " " + std::string(core::name_of(dtype)));
      const TensorId x = w.activation({129, cols});
      expect_as_reference(w.done(w.op(ops::kGateRows, {x, w.activation({129, 1})}, {})), dtype);
      if (HasFatalFailure()) return;
    }
  }
}

/// Sizes of DeepSeek's heads and odd ones; values that are wider than keys.
TEST_F(CudaExperts, LatentAttention) {
  struct Heads {
    std::int64_t seq, heads, plain, rotary, v_dim;
  };
  for (const Heads& h :
       {Heads{70, 3, 128, 64, 128}, {33, 5, 7, 4, 9}, {130, 2, 24, 8, 48}, {1, 2, 16, 8, 16}}) {
    for (const DType dtype : kDtypes) {
      CaseWriter w("heads of " + std::to_string(h.plain) + " + " + std::to_string(h.rotary) + ", " +
                   std::to_string(h.v_dim) + " " + std::string(core::name_of(dtype)));
      const TensorId q = w.activation({2, h.seq, h.heads * (h.plain + h.rotary)});
      const TensorId kv = w.activation({2, h.seq, h.heads * (h.plain + h.v_dim)});
      const TensorId rotary = w.activation({2, h.seq, h.rotary});
      const Attributes attrs{{"heads", h.heads}, {"qk_dim", h.plain + h.rotary}, {"v_dim", h.v_dim}};
      expect_as_reference(w.done({w.op(ops::kLatentAttention, {q, kv, rotary}, attrs)[0]}), dtype);
      if (HasFatalFailure()) return;
    }
  }
}

/// More cached rows than a block reads at a time, and the first one alone.
TEST_F(CudaExperts, DecodingFromLatents) {
  constexpr std::int64_t kPositions = 700;
  for (const std::int64_t rank : {64, 21}) {
    for (const DType dtype : kDtypes) {
      CaseWriter w("latents of " + std::to_string(rank) + " " + std::string(core::name_of(dtype)));
      const std::int64_t heads = 3, plain = 11, rotary = 8, v_dim = 5, batch = 3;
      const TensorId latents = w.add("latents", {batch, 1, kPositions, rank}, program::Role::cache);
      const TensorId keys = w.add("keys", {batch, 1, kPositions, rotary}, program::Role::cache);
      const TensorId first = w.ids({batch}, kPositions);
      w.fix(first, {0, 255, number(kPositions - 1)});
      const TensorId y = w.add("y", {batch, 1, heads * v_dim}, program::Role::activation);
      w.op_into(
          ops::kDecodeLatentAttention,
          {w.activation({batch, 1, heads * (plain + rotary)}), w.activation({batch, 1, rank}),
           w.activation({batch, 1, rotary}), first, w.weight({heads * (plain + v_dim), rank}), latents, keys},
          {{"heads", heads}, {"qk_dim", plain + rotary}, {"v_dim", v_dim}, {"keys", kPositions}},
          {y, latents, keys});
      expect_as_reference(w.done(), dtype);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace rooflm::tests
