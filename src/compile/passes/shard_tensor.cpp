// Tensor parallelism: several ranks share each layer's matmuls.
#include "compile/passes/shard_tensor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "compile/passes/part_ops.h"
#include "compile/passes/words.h"
#include "program/planned_ops.h"

namespace rooflm::passes {
namespace {

using program::Shard;

enum class Split : std::uint8_t { none, rows, columns };

/// How a parameter is split, by its name (model/parameters.h).
Split split_of(std::string_view name) {
  for (const std::string_view part :
       {".attention.qkv.weight", ".attention.qkv.bias", ".feed_forward.fc1.weight", ".feed_forward.fc1.bias",
        ".shared.fc1.weight", ".shared.fc1.bias"}) {
    if (name.ends_with(part)) return Split::rows;
  }
  for (const std::string_view part :
       {".attention.proj.weight", ".feed_forward.fc2.weight", ".shared.fc2.weight"}) {
    if (name.ends_with(part)) return Split::columns;
  }
  return Split::none;
}

/// Whether ranks of sequence parallelism compute it of their own rows: what chooses and weighs experts.
bool is_of_own_rows(std::string_view name) {
  return name.ends_with(".router.weight") || name.ends_with(".router.bias") ||
         name.ends_with(".shared_gate.weight");
}

/// The axis along which ranks share an expert's weights [E, n, k], by their name; 0: none.
int axis_of_experts(std::string_view name) {
  return name.ends_with(".experts.fc1.weight") ? 1 : name.ends_with(".experts.fc2.weight") ? 2 : 0;
}

/// Whether the name is the embedding's table or the head, which may be the same.
bool has_vocabulary(std::string_view name) { return name == "wte" || name == "lm_head.weight"; }

/// Emits the rank's program op by op.
class TensorSplitter {
 public:
  TensorSplitter(const Program& whole, const compile::Sharding& sharding, const program::Coordinates& rank)
      : whole_(&whole),
        parts_(sharding.tensor),
        index_(rank.tensor),
        by_rows_(sharding.sequence_parallel),
        shares_experts_(sharding.expert_tensor > 1),
        by_vocabulary_(sharding.vocab_parallel && vocabulary_of(whole) % sharding.tensor == 0),
        renamed_(whole.tensors.size(), program::kNone) {
    find_packing();
    add_persistent();
  }

  void run() {
    for (const Op& op : whole_->ops) write(op);
  }
  Program take() { return std::move(split_); }
  [[nodiscard]] std::vector<std::string> summed() const { return {summed_.begin(), summed_.end()}; }

 private:
  static std::int64_t vocabulary_of(const Program& whole) {
    const TensorId table = whole.find("wte");
    return table == program::kNone ? 1 : whole.shape(table)[0];
  }

  [[nodiscard]] Split own_split_of(std::string_view name) const {
    return by_vocabulary_ && has_vocabulary(name) ? Split::rows : split_of(name);
  }

  /// Finds the packed extents: rows of q, k and v, and of gate and up, in one weight.
  void find_packing() {
    for (const Op& op : whole_->ops) {
      if (op.is(ops::kAttention) || op.is(ops::kDecodeAttention)) {
        const std::int64_t d = op.attrs.integer("head_dim");
        const std::int64_t kv = op.attrs.integer("kv_heads") * d;
        qkv_ = {op.attrs.integer("heads") * d, kv, kv};
      } else if (op.is(ops::kSwiGlu) || (op.is(ops::kActivate) && op.attrs.flag("gated"))) {
        is_gated_ = true;
      }
    }
  }

  void add_persistent() {
    for (std::size_t i = 0; i < whole_->tensors.size(); ++i) {
      Tensor tensor = whole_->tensors[i];
      if (tensor.role == Role::cache) tensor = own_heads(std::move(tensor));
      if (tensor.role != Role::weight && tensor.role != Role::input && tensor.role != Role::cache) continue;
      const Split split = own_split_of(tensor.name);
      if (split != Split::none) {
        const bool is_qkv = tensor.name.find(".qkv.") != std::string::npos;
        Shard shard{.group = Group::tensor,
                    .axis = split == Split::rows ? 0 : 1,
                    .index = index_,
                    .parts = parts_,
                    .whole = tensor.shape};
        const std::int64_t half = tensor.shape[0] / 2;
        if (split == Split::rows && !has_vocabulary(tensor.name) && (is_qkv || is_gated_))
          shard.packed = is_qkv ? qkv_ : std::vector{half, half};
        tensor.shape = program::shape_of(shard);
        tensor.shards = {std::move(shard)};
      }
      if (const int axis = axis_of_experts(tensor.name); axis > 0 && shares_experts_) {
        tensor.shards = {
            {.group = Group::tensor, .axis = axis, .index = index_, .parts = parts_, .whole = tensor.shape}};
        tensor.shape = program::shape_of(tensor.shards.back());
      }
      renamed_[i] = split_.add_tensor(std::move(tensor));
    }
    has_own_rows_.assign(split_.tensors.size(), false);
  }

  /// A key/value cache [B, K, P, D] with the rank's heads.
  [[nodiscard]] Tensor own_heads(Tensor cache) const {
    Shard shard{.group = Group::tensor, .axis = 1, .index = index_, .parts = parts_, .whole = cache.shape};
    cache.shape = program::shape_of(shard);
    cache.shards = {std::move(shard)};
    return cache;
  }

  void write(const Op& op) {
    if (op.is(ops::kMatmul) && by_rows_ && is_of_own_rows(name_of(op.inputs[1]))) return write_own_rows(op);
    if (op.is(ops::kMatmul)) return write_matmul(op);
    if (op.is(ops::kGroupedMatmul)) return write_grouped(op);
    if (by_vocabulary_ && op.is(ops::kEmbedding)) return write_embedding(op);
    if (by_vocabulary_ && op.is(ops::kCrossEntropy)) return write_loss(op);
    if (op.is(ops::kEmbedding) || op.is(ops::kAddPositions) || op.is(ops::kCrossEntropy) || op.is(ops::kMean))
      return copy(op, false);
    if (op.is(ops::kHeadNorm)) {  // of a rank's heads: the gradients of its weights are parts
      for (std::size_t weight = 1; weight < op.inputs.size(); ++weight)
        summed_.insert(name_of(op.inputs[weight]));
      return copy(on_own_heads(op), false);
    }
    if (op.is(ops::kRope) || op.is(ops::kAttention)) return copy(on_own_heads(op), false);
    if (op.is(ops::kAppendCache) || op.is(ops::kDecodeAttention)) return write_kept(op);
    if (op.is(ops::kLastRows)) return copy(op, false);
    if (op.is(ops::kScaleCap))  // of rows or of logits
      return copy(op,
                  has_own_rows_[static_cast<std::size_t>(renamed_[static_cast<std::size_t>(op.inputs[0])])]);
    const bool is_split_bias = op.is(ops::kBiasAdd) && split_of(name_of(op.inputs[1])) != Split::none;
    const bool is_activation = op.is(ops::kGelu) || op.is(ops::kSwiGlu) || op.is(ops::kActivate);
    if (op.is(ops::kActivate) && op.inputs.size() > 1) summed_.insert(name_of(op.inputs[1]));
    const bool is_of_rows = !is_activation || has_own_rows(renamed_[static_cast<std::size_t>(op.inputs[0])]);
    copy(op, by_rows_ && !is_split_bias && is_of_rows);
  }

  [[nodiscard]] Op on_own_heads(Op op) const {
    for (const char* heads : {"heads", "kv_heads"}) op.attrs.set(heads, op.attrs.integer(heads) / parts_);
    return op;
  }

  /// Copies an op that writes keys and values into existing caches.
  void write_kept(const Op& op) {
    for (const TensorId id : op.outputs) {
      TensorId& own = renamed_[static_cast<std::size_t>(id)];
      if (own != program::kNone) continue;
      const Shape& whole = whole_->shape(id);
      own = split_.add_tensor({.name = name_of(id), .shape = whole.with(-1, whole[-1] / parts_)});
    }
    Op own = on_own_heads(op);
    std::vector<TensorId> outputs = std::move(own.outputs);
    own.outputs.clear();
    for (auto* ids : {&own.inputs, &outputs}) {
      for (TensorId& id : *ids) id = renamed_[static_cast<std::size_t>(id)];
    }
    split_.append_to(std::move(own), outputs);
    has_own_rows_.resize(split_.tensors.size(), false);
  }

  [[nodiscard]] const std::string& name_of(TensorId id) const { return whole_->tensor(id).name; }

  /// Copies an op onto the rank's tensors. `own_rows`: it works on this rank's rows of them.
  void copy(const Op& op, bool own_rows) {
    Op own = op;
    own.outputs.clear();
    for (TensorId& id : own.inputs) {
      if (id == program::kNone) continue;
      const bool is_weight = whole_->tensor(id).role == Role::weight;
      if (own_rows && is_weight) summed_.insert(name_of(id));
      id = renamed_[static_cast<std::size_t>(id)];
      if (own_rows && !is_weight) id = as_rows(id, op.scope);
    }
    append(op, std::move(own), {}, own_rows);
  }

  void append(const Op& op, Op own, const std::vector<Shape>& shapes, bool own_rows) {
    const std::vector<TensorId> made = split_.append(std::move(own), name_of(op.outputs[0]), shapes);
    for (std::size_t i = 0; i < made.size(); ++i) {
      renamed_[static_cast<std::size_t>(op.outputs[i])] = made[i];
      Tensor& tensor = split_.tensor(made[i]);
      tensor.role = whole_->tensor(op.outputs[i]).role;
      tensor.full_precision = whole_->tensor(op.outputs[i]).full_precision;
    }
    has_own_rows_.resize(split_.tensors.size(), own_rows);
  }

  /// Each rank looks up the rows of its part of the vocabulary and gets zeros for other tokens. Positions are
  /// added to all rows.
  void write_embedding(const Op& op) {
    const TensorId table = renamed_[static_cast<std::size_t>(op.inputs[1])];
    Op own = op;
    own.attrs.set("first", index_ * split_.shape(table)[0]);
    copy(own, false);
    const bool has_positions =
        std::ranges::any_of(whole_->ops, [](const Op& other) { return other.is(ops::kAddPositions); });
    add_up(op, by_rows_ && !has_positions);
  }

  /// Combines losses and log-sum-exps of the parts; the target's logit comes from the one rank that has it
  /// (Shoeybi et al., 2019, section 3).
  void write_loss(const Op& op) {
    Op own = op;
    const std::int64_t part = whole_->shape(op.inputs[0])[-1] / parts_;
    const std::int64_t first = index_ * part;
    own.attrs.set("first", first);
    own.attrs.set("valid", std::clamp<std::int64_t>(op.attrs.integer("valid") - first, 0, part));
    copy(own, false);
    const TensorId losses = renamed_[static_cast<std::size_t>(op.outputs[0])];
    const TensorId lse = renamed_[static_cast<std::size_t>(op.outputs[1])];
    const auto local_op = [&](const program::OpDef& def, std::vector<TensorId> inputs) {
      Op made;
      made.def = &def;
      made.inputs = std::move(inputs);
      made.scope = op.scope;
      return made;
    };
    Op sum = local_op(ops::kAllReduce, {losses});
    sum.attrs = place(1);
    split_.append_to(std::move(sum), {losses});
    Op gather = local_op(ops::kAllGather, {lse});
    gather.attrs = place(1);
    const TensorId all = split_.append(std::move(gather), "lses").at(0);
    split_.append_to(local_op(kJoinLosses, {losses, lse, all}), {losses, lse});
    has_own_rows_.resize(split_.tensors.size(), false);
  }

  void write_matmul(const Op& op) {
    const Split split = own_split_of(name_of(op.inputs[1]));
    const Shape& whole = whole_->shape(op.outputs[0]);
    const std::int64_t n = op.attrs.integer("n");
    Op own = op;
    own.outputs.clear();
    own.inputs[1] = renamed_[static_cast<std::size_t>(op.inputs[1])];
    const TensorId x = renamed_[static_cast<std::size_t>(op.inputs[0])];
    own.inputs[0] = split == Split::columns ? x : whole_input(op, x, split == Split::none);
    if (split == Split::columns) {
      own.attrs.set("k", op.attrs.integer("k") / parts_);
      append(op, std::move(own), {whole}, false);
      return add_up(op, by_rows_);
    }
    if (split == Split::rows) own.attrs.set("n", n / parts_);
    append(op, std::move(own), {whole.with(-1, split == Split::rows ? n / parts_ : n)}, false);
  }

  [[nodiscard]] bool has_own_rows(TensorId id) const { return has_own_rows_[static_cast<std::size_t>(id)]; }

  /// A matmul of a rank's own rows with whole weights.
  void write_own_rows(const Op& op) {
    Op own = op;
    own.outputs.clear();
    summed_.insert(name_of(op.inputs[1]));
    own.inputs[0] = as_rows(renamed_[static_cast<std::size_t>(op.inputs[0])], op.scope);
    own.inputs[1] = renamed_[static_cast<std::size_t>(op.inputs[1])];
    own.attrs.set("m", op.attrs.integer("m") / parts_);
    append(op, std::move(own), {rows_of(whole_->shape(op.outputs[0]))}, true);
  }

  /// Experts take the rows of this rank's tokens, or, where ranks share each expert, those of all of them.
  void write_grouped(const Op& op) {
    const int axis = shares_experts_ ? axis_of_experts(name_of(op.inputs[1])) : 0;
    TensorId rows = renamed_[static_cast<std::size_t>(op.inputs[0])];
    if (axis == 1) {
      const Shape& whole = whole_->shape(op.inputs[0]);
      rows = local(ops::kAllGather, rows, place(whole[-1]), op.scope, whole);
      has_own_rows_.resize(split_.tensors.size(), false);
    }
    const TensorId weight = renamed_[static_cast<std::size_t>(op.inputs[1])];
    const Shape of_weight = split_.shape(weight);
    Op own = op;
    own.outputs.clear();
    own.inputs = {rows, weight, renamed_[static_cast<std::size_t>(op.inputs[2])]};
    own.attrs = ops::grouped_matmul(of_weight[0], split_.shape(rows)[0], of_weight[1], of_weight[2],
                                    op.attrs.flag("trans_b"));
    append(op, std::move(own), {}, axis == 0);
    if (axis == 2) add_up(op, true);
  }

  /// Sums the partial results of all ranks.
  void add_up(const Op& op, bool by_rows) {
    TensorId& y = renamed_[static_cast<std::size_t>(op.outputs[0])];
    const Shape& whole = whole_->shape(op.outputs[0]);
    const std::int64_t width = whole[-1];
    y = by_rows ? local(ops::kReduceScatter, y, place(width), op.scope, rows_of(whole))
                : local(ops::kAllReduce, y, place(width), op.scope, whole);
    has_own_rows_.resize(split_.tensors.size(), by_rows);
  }

  /// All rows of a matmul's input. `same`: all ranks continue with the same computation.
  TensorId whole_input(const Op& op, TensorId x, bool same) {
    const Shape& whole = whole_->shape(op.inputs[0]);
    if (has_own_rows_[static_cast<std::size_t>(x)]) {
      Attributes attrs = place(whole[-1]);
      attrs.set("same", same);
      x = local(ops::kAllGather, x, std::move(attrs), op.scope, whole);
    } else if (!same) {
      x = local(ops::kForEachRank, x, place(whole[-1]), op.scope, whole);
    }
    has_own_rows_.resize(split_.tensors.size(), false);
    return x;
  }

  TensorId as_rows(TensorId x, const std::string& scope) {
    if (has_own_rows_[static_cast<std::size_t>(x)]) return x;
    // The first norm and the first residual read the same rows.
    if (x != rows_from_) {
      const Shape shape = split_.shape(x);
      rows_from_ = x;
      own_rows_ = local(ops::kOwnPart, x, place(shape[-1]), scope, rows_of(shape));
      has_own_rows_.resize(split_.tensors.size(), true);
    }
    return own_rows_;
  }

  [[nodiscard]] Attributes place(std::int64_t unit) const {
    return {{"group", static_cast<std::int64_t>(Group::tensor)},
            {"parts", std::int64_t{parts_}},
            {"index", std::int64_t{index_}},
            {"unit", unit}};
  }
  [[nodiscard]] Shape rows_of(const Shape& whole) const {
    return {whole.numel() / whole[-1] / parts_, whole[-1]};
  }
  TensorId local(const program::OpDef& def, TensorId x, Attributes attrs, const std::string& scope,
                 const Shape& shape) {
    Op op;
    op.def = &def;
    op.inputs = {x};
    op.attrs = std::move(attrs);
    op.scope = scope;
    const std::string name = split_.tensor(x).name;
    return split_.append(std::move(op), name, {shape}).at(0);
  }

  const Program* whole_;
  int parts_, index_;
  bool by_rows_, shares_experts_, by_vocabulary_;
  Program split_;
  std::vector<TensorId> renamed_;   ///< by tensor of the whole program: its counterpart
  std::vector<bool> has_own_rows_;  ///< by new tensor: whether it holds only this rank's rows
  std::vector<std::int64_t> qkv_;
  bool is_gated_ = false;
  std::set<std::string> summed_;
  TensorId rows_from_ = program::kNone, own_rows_ = program::kNone;
};

}  // namespace

std::vector<std::string> shard_tensor(Program& forward, const compile::Sharding& sharding,
                                      const program::Coordinates& rank) {
  if (sharding.tensor == 1) return {};
  TensorSplitter splitter(forward, sharding, rank);
  splitter.run();
  forward = splitter.take();
  return splitter.summed();
}

void drop_identities(Program& program) {
  std::vector<TensorId> source(program.tensors.size());
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<TensorId>(i);
  for (Op& op : program.ops) {
    for (TensorId& id : op.inputs) {
      if (id != program::kNone) id = source[static_cast<std::size_t>(id)];
    }
    if (op.is(ops::kForEachRank)) source[static_cast<std::size_t>(op.outputs[0])] = op.inputs[0];
  }
  std::erase_if(program.ops, [](const Op& op) { return op.is(ops::kForEachRank); });
}

}  // namespace rooflm::passes
