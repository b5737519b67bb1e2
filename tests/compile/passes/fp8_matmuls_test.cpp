// Matmuls of layers that read fp8: which do, what is cast how often, and whose scales are whose.
#include "compile/passes/fp8_matmuls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "compile/passes/plan_memory.h"
#include "program/fp8.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using program::Op;
using program::Program;
using program::TensorId;

StepOptions fp8_step(EngineKind engine = EngineKind::fused) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = core::DType::bf16,
          .fp8 = true,
          .optimizer = {}};
}

Program even_step(Arch arch, const StepOptions& options) {
  return compile::training_step(model::forward(tests::even_config(arch), 2, 16), options);
}

bool is_fp8(const Program& p, TensorId id) {
  return id != program::kNone && core::is_fp8(p.tensor(id).dtype);
}

bool is_matmul(const Op& op) {
  return op.is(ops::kMatmul) || op.is(ops::kMatmulGelu) || op.is(ops::kMatmulGeluBackward);
}

bool is_cast(const Op& op) { return op.attrs.has("e5m2"); }

constexpr std::int64_t kMatmuls = std::int64_t{2} * 4;  // layers times qkv, proj, fc1, fc2

TEST(Fp8Matmuls, OnlyMatmulsOfLayersReadFp8AlongTheInnerDimension) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    const Program p = even_step(arch, fp8_step());
    std::int64_t scaled = 0;
    for (const Op& op : p.ops) {
      const bool reads = std::ranges::any_of(op.inputs, [&](TensorId id) { return is_fp8(p, id); });
      EXPECT_EQ(reads, is_matmul(op) && op.scope.starts_with("h.")) << op.def->name << " " << op.scope;
      const bool writes = std::ranges::any_of(op.outputs, [&](TensorId id) { return is_fp8(p, id); });
      EXPECT_EQ(writes, is_cast(op));
      if (!reads) continue;
      ++scaled;
      EXPECT_FALSE(op.attrs.flag("trans_a"));
      EXPECT_TRUE(op.attrs.flag("trans_b"));
      EXPECT_EQ(p.shape(op.inputs[0]), (core::Shape{op.attrs.integer("m"), op.attrs.integer("k")}));
      EXPECT_EQ(p.shape(op.inputs[1]), (core::Shape{op.attrs.integer("n"), op.attrs.integer("k")}));
      EXPECT_EQ(op.attrs.flag("fast_sums"), op.phase == program::Phase::forward);
    }
    EXPECT_EQ(scaled, 3 * kMatmuls);
  }
}

/// Activations, weights and gradients of each matmul once, in both layouts.
TEST(Fp8Matmuls, ATensorIsCastOnce) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    StepOptions options = fp8_step(engine);
    options.fp8_options.weights = passes::Fp8Weights::keep;
    const Program p = even_step(Arch::llama, options);
    std::map<program::Phase, std::int64_t> casts;
    std::set<std::pair<const program::OpDef*, TensorId>> sources;  // the first norm's x is read by a second
    for (const Op& op : p.ops) {
      if (!is_cast(op)) continue;
      ++casts[op.phase];
      EXPECT_TRUE(sources.insert({op.def, op.inputs[0]}).second);
      EXPECT_TRUE(is_fp8(p, op.outputs[0]) && is_fp8(p, op.outputs[1])) << op.scope;
    }
    EXPECT_EQ(casts[program::Phase::forward], 2 * kMatmuls);
    EXPECT_EQ(casts[program::Phase::backward], kMatmuls);
  }
}

std::int64_t ops_of(const Program& p, const program::OpDef& def) {
  return std::ranges::count_if(p.ops, [&](const Op& op) { return op.is(def); });
}

/// The fused engine stores neither what SwiGLU makes nor its gradient, nor results of norms: matmuls alone
/// read them. The last norm is the head's, which stays in 16 bits.
TEST(Fp8Matmuls, CastsJoinWhatMakesTheirTensor) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const Program p = even_step(Arch::llama, fp8_step(engine));
    const int layers = engine == EngineKind::fused ? 2 : 0;
    EXPECT_EQ(ops_of(p, ops::kSwiGluFp8), layers);
    EXPECT_EQ(ops_of(p, ops::kSwiGluBackwardFp8), layers);
    EXPECT_EQ(ops_of(p, ops::kSwiGlu), 2 - layers);
    EXPECT_EQ(ops_of(p, ops::kSwiGluBackward), 2 - layers);
    const bool joins = layers > 0;
    EXPECT_EQ(ops_of(p, ops::kRmsNormFp8), joins ? 1 : 0);
    EXPECT_EQ(ops_of(p, ops::kAddRmsNormFp8), joins ? 3 : 0);
    EXPECT_EQ(ops_of(p, ops::kRmsNorm), joins ? 0 : 5);
    EXPECT_EQ(ops_of(p, ops::kAddRmsNorm), joins ? 1 : 0);
    const Program gpt2 = even_step(Arch::gpt2, fp8_step(engine));
    EXPECT_EQ(ops_of(gpt2, ops::kLayerNormFp8), joins ? 1 : 0);
    EXPECT_EQ(ops_of(gpt2, ops::kAddLayerNormFp8), joins ? 3 : 0);
  }
}

/// Kernels keep some rows in shared memory: a norm of longer ones is stored, and cast.
TEST(Fp8Matmuls, LongRowsOfNormsAreCastApart) {
  model::ModelConfig config = tests::even_config(Arch::llama);
  for (const std::int64_t cols : {program::kFp8NormCols, program::kFp8NormCols + config.d_model}) {
    config.d_model = cols;
    const Program p = compile::training_step(model::forward(config, 2, 16), fp8_step());
    EXPECT_EQ(ops_of(p, ops::kAddRmsNormFp8), cols == program::kFp8NormCols ? 3 : 0);
    EXPECT_EQ(ops_of(p, ops::kAddRmsNorm), cols == program::kFp8NormCols ? 1 : 4);
  }
}

using Slots = std::map<std::tuple<std::string, std::string, std::size_t>, std::int64_t>;

/// The slot of each factor of each matmul.
Slots slots_of(const Program& p) {
  Slots slots;
  for (const Op& op : p.ops) {
    if (!is_matmul(op) || !is_fp8(p, op.inputs[0])) continue;
    const std::string kind = op.phase == program::Phase::forward || op.recomputed      ? "forward"
                             : p.tensor(op.outputs[0]).role == program::Role::gradient ? "gradient"
                                                                                       : "backward";
    for (const std::size_t i : {0U, 1U}) {
      const auto [entry, is_new] = slots.try_emplace({op.scope, kind, i}, op.input_offset.at(3 + i));
      EXPECT_EQ(entry->second, op.input_offset.at(3 + i)) << op.scope << " " << kind;
    }
  }
  return slots;
}

/// x w, dy w and dy x share their factors' slots; nobody else has them, and every way to run the step has the
/// same ones, since a run may be continued in another.
TEST(Fp8Matmuls, SlotsBelongToTheOperandsOfAMatmul) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    const Slots slots = slots_of(even_step(arch, fp8_step()));
    std::set<std::int64_t> distinct;
    for (const auto& [key, slot] : slots) {
      const auto& [scope, kind, factor] = key;
      distinct.insert(slot);
      const auto same = [&](const char* other, std::size_t i) { return slots.at({scope, other, i}); };
      if (kind == "backward") {
        EXPECT_EQ(slot, factor == 0 ? same("gradient", 0) : same("forward", 1)) << scope;
      }
      if (kind == "gradient" && factor == 1) {
        EXPECT_EQ(slot, same("forward", 0)) << scope;
      }
    }
    EXPECT_EQ(std::ssize(distinct), kMatmuls * program::kFp8Operands);
    EXPECT_EQ(*distinct.rbegin(), (kMatmuls * program::kFp8Operands - 1) * program::kFp8Slot);
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      for (const auto kind : {passes::Recompute::selective, passes::Recompute::full}) {
        StepOptions options = fp8_step(engine);
        options.recompute = kind;
        options.micro_batches = 2;
        EXPECT_EQ(slots_of(even_step(arch, options)), slots);
      }
    }
  }
}

TEST(Fp8Matmuls, ScalesAreMadeBehindEverything) {
  StepOptions options = fp8_step();
  options.optimizer.clip_norm = 0;  // updates run beside the backward pass
  const Program p = even_step(Arch::llama, options);
  EXPECT_TRUE(p.ops.back().is(ops::kFp8Scales));
  EXPECT_EQ(p.ops.back().lane, program::Lane::compute);
  const program::Tensor& state = p.tensor(p.find("fp8_scales"));
  EXPECT_EQ(state.role, program::Role::optimizer_state);
  EXPECT_EQ(state.shape, (core::Shape{kMatmuls * program::kFp8Operands, program::kFp8Slot}));
}

TEST(Fp8Matmuls, GradientsAloneMayBeE5M2) {
  StepOptions options = fp8_step();
  options.fp8_options.gradients = passes::Fp8Gradients::e5m2;
  const Program p = even_step(Arch::gpt2, options);
  for (const Op& op : p.ops) {
    if (!op.is(ops::kFp8Cast)) continue;
    const bool is_gradient = p.tensor(op.inputs[0]).role == program::Role::activation_gradient;
    const TensorId copy = op.outputs[0] != program::kNone ? op.outputs[0] : op.outputs[1];
    EXPECT_EQ(p.tensor(copy).dtype, is_gradient ? core::DType::f8_e5m2 : core::DType::f8);
  }
}

/// What plans of some frameworks ask for.
TEST(Fp8Matmuls, OwnScalesAreCurrentOnes) {
  StepOptions options = fp8_step();
  options.rewrites.set(compile::Rewrite::fp8_own_scales);
  const Program p = even_step(Arch::gpt2, options);
  EXPECT_EQ(p.find("fp8_scales"), program::kNone);
  std::int64_t casts = 0;
  std::set<TensorId> of_forward;  // what is kept for the backward pass has 16 bits
  for (const Op& op : p.ops) {
    const bool is_forward = op.phase == program::Phase::forward;
    for (const TensorId id : op.inputs) EXPECT_TRUE(is_forward || !of_forward.contains(id)) << op.scope;
    if (!op.is(ops::kFp8Cast)) continue;
    EXPECT_TRUE(op.attrs.flag("current"));
    ++casts;
    for (const TensorId id : op.outputs) {
      if (is_forward && is_fp8(p, id)) of_forward.insert(id);
    }
  }
  EXPECT_FALSE(of_forward.empty());
  EXPECT_GT(casts, 0);
}

TEST(Fp8Matmuls, CurrentScalesAreNoState) {
  StepOptions options = fp8_step();
  options.fp8_options.scaling = passes::Fp8Scaling::current;
  const Program training = even_step(Arch::llama, options);
  const Program inference =
      compile::inference_step(model::forward(tests::even_config(Arch::llama), 2, 16), fp8_step());
  for (const Program* p : {&training, &inference}) {
    EXPECT_EQ(p->find("fp8_scales"), program::kNone);
    EXPECT_TRUE(std::ranges::any_of(p->ops, [](const Op& op) { return op.is(ops::kFp8Cast); }));
    EXPECT_TRUE(std::ranges::none_of(p->ops, [](const Op& op) { return op.is(ops::kFp8Scales); }));
  }
}

/// What the backward pass needs of an activation that matmuls alone read is a byte of each element.
TEST(Fp8Matmuls, KeepsLessThanBf16) {
  StepOptions bf16 = fp8_step();
  bf16.fp8 = false;
  const auto kept = [](const Program& p) {
    std::int64_t sum = 0;
    const auto lifetimes = passes::find_lifetimes(p);
    const auto last_forward =
        std::ranges::find_if(p.ops, [](const Op& op) { return op.phase == program::Phase::backward; });
    const auto turn = static_cast<int>(last_forward - p.ops.begin());
    for (std::size_t id = 0; id < p.tensors.size(); ++id) {
      const bool is_kept =
          lifetimes[id].first >= 0 && lifetimes[id].first < turn && lifetimes[id].last > turn;
      if (is_kept && p.tensors[id].role == program::Role::activation) sum += p.tensors[id].bytes();
    }
    return sum;
  };
  EXPECT_LT(kept(even_step(Arch::llama, fp8_step())), kept(even_step(Arch::llama, bf16)));
}

/// Each layout of a weight in the pass that reads it: nothing of it lives from one pass to the other.
TEST(Fp8Matmuls, WeightsMayBeCastInEachPass) {
  StepOptions options = fp8_step();
  options.fp8_options.weights = passes::Fp8Weights::recast;
  const Program p = even_step(Arch::gpt2, options);
  std::map<TensorId, std::set<program::Phase>> weights;
  for (const Op& op : p.ops) {
    if (!op.is(ops::kFp8Cast) || p.tensor(op.inputs[0]).role != program::Role::weight) continue;
    const bool is_forward = op.phase == program::Phase::forward;
    EXPECT_EQ(op.outputs[is_forward ? 1 : 0], program::kNone);
    EXPECT_TRUE(weights[op.inputs[0]].insert(op.phase).second);
  }
  EXPECT_EQ(std::ssize(weights), kMatmuls);
  for (const auto& [weight, phases] : weights) EXPECT_EQ(phases.size(), 2U);
  EXPECT_EQ(slots_of(p), slots_of(even_step(Arch::gpt2, fp8_step())));
}

/// 24 and 45 are no multiples of 16: such matmuls stay as they are, and so does the step.
TEST(Fp8Matmuls, RecomputedMatmulsOfFrameworksCastWhatIsKeptAgain) {
  StepOptions options = fp8_step();
  options.recompute = passes::Recompute::every_other;  // the attention's output is kept, proj is recomputed
  const auto casts = [&](bool own_scales) {
    options.rewrites.set(compile::Rewrite::fp8_own_scales, own_scales);
    const Program p = even_step(Arch::llama, options);
    std::vector<program::Phase> phases;
    for (const Op& op : p.ops) {
      if (!is_cast(op) || p.tensor(op.inputs.at(0)).name != "attention") continue;
      const bool is_as_stored = std::ranges::any_of(op.outputs, [&](TensorId id) {
        return id != program::kNone && p.tensor(id).name == "attention.fp8";
      });
      if (is_as_stored) phases.push_back(op.phase);
    }
    return phases;
  };
  EXPECT_EQ(std::ranges::count(casts(false), program::Phase::backward), 0);
  EXPECT_EQ(std::ranges::count(casts(true), program::Phase::backward), 2);  // layers
}

TEST(Fp8Matmuls, ExtentsThatDoNotFitStayBf16) {
  StepOptions options = fp8_step();
  const Program fp8 = tests::small_step(Arch::llama, options);
  options.fp8 = false;
  const Program bf16 = tests::small_step(Arch::llama, options);
  EXPECT_EQ(fp8.ops.size(), bf16.ops.size());
  EXPECT_EQ(fp8.tensors.size(), bf16.tensors.size());
}

}  // namespace
}  // namespace rooflm
