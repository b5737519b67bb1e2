// Tensor-parallel ranks exchange activations in fp8. For plans only.
#include "compile/planned/fp8_gathers.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "compile/planned/collective_copies.h"
#include "program/fp8.h"

namespace rooflm::passes {
namespace {

class Gathers {
 public:
  explicit Gathers(Program& step) : step_(&step) { find_casts(); }

  void run() {
    std::vector<Op> all = std::move(step_->ops);
    step_->ops.clear();
    for (Op& op : all) {
      for (TensorId& id : op.inputs) {
        if (const auto found = instead_.find(id); found != instead_.end()) id = found->second;
      }
      const auto gathered = is_row_gather(op) ? casts_.find(op.outputs[0]) : casts_.end();
      if (gathered != casts_.end() && gathered->second) {
        gather(op, *gathered->second);
      } else if (!is_left_out(op)) {
        step_->ops.push_back(std::move(op));
      }
    }
  }

 private:
  /// The attributes of the cast of all rows.
  struct Cast {
    std::int64_t rows = 0, cols = 0;
    bool is_e5m2 = false;
  };
  /// Rows in fp8 and their scale.
  struct Copy {
    TensorId whole = program::kNone, slot = program::kNone;
  };

  /// A rank's own rows in fp8, which may be gathered again (passes/gather_again.h).
  struct OwnRows {
    TensorId rows = program::kNone, slot = program::kNone;
  };

  static bool is_row_gather(const Op& op) {
    return op.is(ops::kAllGather) && program::group_of(op) == program::Group::tensor &&
           op.outputs.size() == 1;
  }

  /// Finds the cast of each tensor that only casts read; a tensor with other readers has none.
  void find_casts() {
    for (const Op& op : step_->ops) {
      const bool is_cast = op.is(ops::kFp8Cast) && op.attrs.flag("current");
      for (const TensorId id : op.inputs) {
        if (!is_cast) {
          casts_[id] = std::nullopt;
          continue;
        }
        casts_.try_emplace(id, Cast{.rows = op.attrs.integer("rows"),
                                    .cols = op.attrs.integer("cols"),
                                    .is_e5m2 = op.attrs.flag("e5m2")});
      }
    }
  }

  void gather(const Op& op, const Cast& cast) {
    const std::int64_t parts = op.attrs.integer("parts");
    if (cast.rows % (parts * kUnit) != 0) {
      step_->ops.push_back(op);
      return;
    }
    const core::DType dtype = cast.is_e5m2 ? core::DType::f8_e5m2 : core::DType::f8;
    const program::Tensor like = step_->tensor(op.outputs[0]);
    const auto add = [&](const char* suffix, const core::Shape& shape) {
      return step_->add_tensor(
          {.name = like.name + suffix, .shape = shape, .dtype = dtype, .role = like.role});
    };
    const auto [entry, is_new] = own_.try_emplace(op.inputs[0]);
    OwnRows& own = entry->second;
    if (is_new) {
      own.rows = add(".own_fp8", {cast.rows / parts, cast.cols});
      own.slot = step_->add_tensor({.name = like.name + ".fp8_scale",
                                    .shape = {program::kFp8Slot},
                                    .role = Role::workspace,
                                    .full_precision = true});
      Op made = op_like(op, ops::kFp8Cast, {op.inputs[0]}, {own.rows, program::kNone, own.slot});
      made.attrs = {
          {"rows", cast.rows / parts}, {"cols", cast.cols}, {"e5m2", cast.is_e5m2}, {"current", true}};
      step_->ops.push_back(std::move(made));
      step_->ops.push_back(op_like(op, ops::kAllReduce, {own.slot}, {own.slot}));
    }
    const Copy copy{.whole = add(".fp8", {cast.rows, cast.cols}), .slot = own.slot};
    step_->ops.push_back(op_like(op, ops::kAllGather, {own.rows}, {copy.whole}));
    copies_[op.outputs[0]] = copy;
  }

  /// Whether the op is a cast that became unnecessary because its input is gathered in fp8. The other layout
  /// is then made from the fp8 rows.
  bool is_left_out(const Op& op) {
    if (!op.is(ops::kFp8Cast)) return false;
    const auto found = copies_.find(op.inputs[0]);
    if (found == copies_.end()) return false;
    const Copy& copy = found->second;
    instead_[op.outputs[program::kAsStored]] = copy.whole;
    instead_[op.outputs[program::kSlot]] = copy.slot;
    instead_.erase(program::kNone);
    if (op.outputs[program::kTransposed] != program::kNone) {
      Op turn = op_like(op, kRearrange, {copy.whole}, {op.outputs[program::kTransposed]});
      turn.attrs = Attributes{};
      step_->ops.push_back(std::move(turn));
    }
    return true;
  }

  static constexpr std::int64_t kUnit = 16;  ///< rows of casts are multiples of it
  Program* step_;
  std::map<TensorId, std::optional<Cast>> casts_;  ///< by the tensor that they read
  std::map<TensorId, OwnRows> own_;                ///< by their 16-bit tensor
  std::map<TensorId, Copy> copies_;                ///< by the tensor that was gathered in 16 bits
  std::map<TensorId, TensorId> instead_;
};

}  // namespace

void fp8_gathers(Program& step) { Gathers(step).run(); }

}  // namespace rooflm::passes
