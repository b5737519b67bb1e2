// Activations that a gradient's kernel writes again instead of the forward pass keeping them.
#include "compile/passes/rebuild.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "compile/passes/no_index.h"
#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

/// A forward op, x -> y, whose output its gradient can write again.
struct Family {
  const OpDef* forward;
  const OpDef* fused;            ///< the same behind a residual addition or a matmul, or nullptr
  std::size_t fused_x, fused_y;  ///< that op's outputs
  const OpDef* backward;
  std::size_t statistics;  ///< that forward writes after y and backward reads as inputs from 3 on
  bool has_bias;           ///< which backward needs for it, as its last input
};
constexpr std::size_t kFirstStatistic = 3;
const Family kFamilies[] = {{&ops::kLayerNorm, &ops::kAddLayerNorm, 0, 1, &ops::kLayerNormBackward, 2, true},
                            {&ops::kRmsNorm, &ops::kAddRmsNorm, 0, 1, &ops::kRmsNormBackward, 1, false},
                            {&ops::kSwiGlu, nullptr, 0, 0, &ops::kSwiGluBackward, 0, false},
                            {&ops::kGelu, &ops::kMatmulGelu, 1, 0, &ops::kGeluBackward, 0, false}};

/// The family whose member `of` names the op's definition, or nullptr.
const Family* family_of(const Op& op, const OpDef* Family::*of) {
  const auto* found = std::ranges::find_if(kFamilies, [&](const Family& f) { return f.*of == op.def; });
  return found == std::end(kFamilies) ? nullptr : found;
}

/// One gradient and the output that it may write again.
struct Rebuilt {
  const Family* family;
  std::size_t backward;
  std::size_t forward = kNoIndex;      ///< the op of the forward pass
  std::size_t recomputed = kNoIndex;   ///< its copy in the backward pass
  std::vector<std::size_t> readers{};  ///< matmuls of the backward pass that read the output
  bool is_possible = true;
  bool is_over = false;  ///< `backward` has been passed
};

class Rebuilding {
 public:
  explicit Rebuilding(Program& p) : program_(&p) {}

  void run() {
    find_gradients();
    if (all_.empty()) return;
    find_readers();
    rewrite();
  }

 private:
  [[nodiscard]] Op& op(std::size_t i) const { return program_->ops[i]; }

  /// Output y of a forward op, plain or fused.
  static std::size_t y_of(const Op& op) {
    const Family* family = family_of(op, &Family::fused);
    return family != nullptr ? family->fused_y : 0;
  }

  /// Whether the gradient adds the gradient of a residual, as those of all layers do.
  static bool is_complete(const Family& family, const Op& backward) {
    return family.statistics == 0 || backward.inputs.size() == kFirstStatistic + family.statistics + 1;
  }

  void find_gradients() {
    std::vector<std::size_t> forward_of(program_->tensors.size(), kNoIndex);  // by what the op reads, x
    std::vector<std::size_t> copy_of(program_->tensors.size(), kNoIndex);
    wanted_.assign(program_->tensors.size(), kNoIndex);
    for (std::size_t i = 0; i < program_->ops.size(); ++i) {
      const Op& o = op(i);
      if (family_of(o, &Family::forward) != nullptr) {
        const auto x = static_cast<std::size_t>(o.inputs[0]);
        if (o.phase == Phase::forward) forward_of[x] = i;
        if (o.recomputed) copy_of[x] = i;
      } else if (const Family* fused = family_of(o, &Family::fused);
                 fused != nullptr && o.phase == Phase::forward) {
        forward_of[static_cast<std::size_t>(o.outputs[fused->fused_x])] = i;
      }
      const Family* family = family_of(o, &Family::backward);
      if (family == nullptr || !is_complete(*family, o) || !core::Scope(o.scope).layer()) continue;
      const auto x = static_cast<std::size_t>(o.inputs[1]);
      Rebuilt rebuilt{.family = family, .backward = i, .forward = forward_of[x], .recomputed = copy_of[x]};
      const bool has_statistics = family->statistics == 0 || rebuilt.forward != kNoIndex;
      const std::size_t from = rebuilt.recomputed != kNoIndex ? rebuilt.recomputed : rebuilt.forward;
      if (!has_statistics || from == kNoIndex) continue;
      const Op& source = op(from);
      wanted_[static_cast<std::size_t>(source.outputs[y_of(source)])] = all_.size();
      all_.push_back(std::move(rebuilt));
    }
  }

  /// Only matmuls that write gradients of weights of the same layer may wait for the output.
  [[nodiscard]] bool can_wait(const Op& reader, const Rebuilt& rebuilt) const {
    const Op& backward = op(rebuilt.backward);
    return !rebuilt.is_over && !reader.recomputed && ops::is_matmul(reader) &&
           program_->tensor(reader.outputs[0]).role == program::Role::gradient &&
           reader.micro_batch == backward.micro_batch &&
           core::Scope(reader.scope).layer() == core::Scope(backward.scope).layer();
  }

  void find_readers() {
    // By gradient that is to come later: the index in all_ of what it waits for.
    std::vector<std::size_t> waits_for(program_->tensors.size(), kNoIndex);
    std::vector<std::size_t> ends(program_->ops.size(), kNoIndex);
    for (std::size_t k = 0; k < all_.size(); ++k) ends[all_[k].backward] = k;
    for (std::size_t i = 0; i < program_->ops.size(); ++i) {
      const Op& o = op(i);
      if (o.phase != Phase::backward && o.phase != Phase::optimizer) continue;
      for (const auto* operands : {&o.inputs, &o.outputs}) {
        for (const TensorId id : *operands) {
          if (id == program::kNone) continue;
          const std::size_t late = waits_for[static_cast<std::size_t>(id)];
          if (late != kNoIndex && !all_[late].is_over) all_[late].is_possible = false;
        }
      }
      for (const TensorId id : o.inputs) {
        const std::size_t k = id == program::kNone ? kNoIndex : wanted_[static_cast<std::size_t>(id)];
        if (k == kNoIndex) continue;
        Rebuilt& rebuilt = all_[k];
        rebuilt.is_possible = rebuilt.is_possible && can_wait(o, rebuilt);
        rebuilt.readers.push_back(i);
        waits_for[static_cast<std::size_t>(o.outputs[0])] = k;
      }
      if (ends[i] != kNoIndex) all_[ends[i]].is_over = true;
    }
  }

  /// Makes the gradient write the output again, and its readers read that.
  void apply(const Rebuilt& rebuilt) {
    const Family& family = *rebuilt.family;
    const std::size_t from = rebuilt.recomputed != kNoIndex ? rebuilt.recomputed : rebuilt.forward;
    const TensorId old = op(from).outputs[y_of(op(from))];
    const TensorId fresh = rebuilt.recomputed != kNoIndex ? old : program_->add_tensor(program_->tensor(old));
    Op& backward = op(rebuilt.backward);
    if (rebuilt.forward != kNoIndex) {
      const Op& forward = op(rebuilt.forward);
      for (std::size_t s = 0; s < family.statistics; ++s)
        backward.inputs[kFirstStatistic + s] = forward.outputs[y_of(forward) + 1 + s];
      if (family.has_bias) backward.inputs.push_back(forward.inputs.back());
    }
    backward.outputs.push_back(fresh);
    if (!backward.output_offset.empty()) backward.output_offset.push_back(0);
    backward.attrs.set("rebuilds", true);
    for (const std::size_t reader : rebuilt.readers) std::ranges::replace(op(reader).inputs, old, fresh);
  }

  void rewrite() {
    std::vector<const Rebuilt*> after(program_->ops.size(), nullptr);
    std::vector<bool> moves(program_->ops.size(), false);  // or goes
    for (const Rebuilt& rebuilt : all_) {
      if (!rebuilt.is_possible || rebuilt.readers.empty()) continue;
      apply(rebuilt);
      after[rebuilt.backward] = &rebuilt;
      if (rebuilt.recomputed != kNoIndex) moves[rebuilt.recomputed] = true;
      for (const std::size_t reader : rebuilt.readers) moves[reader] = true;
    }
    std::vector<Op> all;
    all.reserve(program_->ops.size());
    for (std::size_t i = 0; i < program_->ops.size(); ++i) {
      if (moves[i]) continue;
      const Rebuilt* rebuilt = after[i];
      all.push_back(std::move(op(i)));
      if (rebuilt == nullptr) continue;
      for (const std::size_t reader : rebuilt->readers) all.push_back(std::move(op(reader)));
    }
    program_->ops = std::move(all);
  }

  Program* program_;
  std::vector<Rebuilt> all_;
  std::vector<std::size_t> wanted_;  ///< by tensor: the index in all_ of what would write it again
};

}  // namespace

void rebuild(Program& program) { Rebuilding(program).run(); }

}  // namespace rooflm::passes
