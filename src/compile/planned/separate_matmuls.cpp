// Separates matmuls that rooflm packs and other frameworks run one by one. For plans only.
#include "compile/planned/separate_matmuls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

using Widths = std::vector<std::int64_t>;

/// Widths in columns of q, k and v.
Widths head_widths(const Program& step) {
  for (const Op& op : step.ops) {
    if (!op.is(ops::kFlashAttention) && !op.is(ops::kAttentionBlock)) continue;
    const std::int64_t d = op.attrs.integer("head_dim");
    const std::int64_t kv = op.attrs.integer("kv_heads") * d;
    return {op.attrs.integer("heads") * d, kv, kv};
  }
  return {};
}

/// Name of the extent of a matmul along which the weights are packed.
const char* packed_extent(const Program& step, const Op& op) {
  if (op.phase == Phase::forward || op.recomputed) return "n";
  const bool is_of_weights = step.tensor(op.outputs[0]).role == program::Role::gradient;
  return is_of_weights ? "m" : "k";
}

class MatmulSeparator {
 public:
  explicit MatmulSeparator(Program& step) : step_(&step), heads_(head_widths(step)) {}

  void run() {
    std::vector<Op> all = std::move(step_->ops);
    step_->ops.clear();
    for (Op& op : all) {
      const Widths widths = widths_of(op);
      if (widths.empty()) {
        step_->ops.push_back(std::move(op));
      } else {
        separate(op, widths);
      }
    }
  }

 private:
  /// Empty if the op is not a packed matmul.
  [[nodiscard]] Widths widths_of(const Op& op) const {
    if (!op.is(ops::kMatmul) || op.attrs.integer("batch") != 1 || op.phase == Phase::optimizer) return {};
    const auto part = core::Scope(op.scope).part();
    const std::int64_t packed = op.attrs.integer(packed_extent(*step_, op));
    if (part == "feed_forward/fc1" && packed % 2 == 0) return {packed / 2, packed / 2};
    const bool is_qkv =
        part == "attention/qkv" && std::accumulate(heads_.begin(), heads_.end(), std::int64_t{0}) == packed;
    return is_qkv ? heads_ : Widths{};
  }

  /// Each part begins where the previous one ends, in all operands that have the packed extent.
  void separate(const Op& op, const Widths& widths) {
    const char* const extent = packed_extent(*step_, op);
    std::int64_t first = 0;
    for (const std::int64_t columns : widths) {
      Op own = op;
      own.attrs.set(extent, columns);
      // The cost model ignores where a part begins, so offsets are 0. A non-empty input_offset marks the op
      // as working on a part, so `check` does not compare it with its whole operands.
      own.input_offset.resize(op.inputs.size(), 0);
      own.output_offset.resize(op.outputs.size(), 0);
      if (*extent == 'k' && first > 0) own.attrs.set("accumulate", true);
      step_->ops.push_back(std::move(own));
      first += columns;
    }
  }

  Program* step_;
  Widths heads_;
};

}  // namespace

void separate_matmuls(Program& step) {
  const bool has_gate = std::ranges::any_of(step.ops, [](const Op& op) { return op.is(ops::kSwiGlu); });
  if (has_gate) MatmulSeparator(step).run();
}

}  // namespace rooflm::passes
