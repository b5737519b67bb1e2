// Adapters in a program: their ops in the forward pass, and which gradients are left.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/adapters.h"
#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

/// Adds the adapters of one matmul after it, or after its bias.
class AdapterWriter {
 public:
  AdapterWriter(Program& program, const std::vector<Adapter>& adapters, bool is_packed)
      : program_(&program), is_packed_(is_packed) {
    for (const Adapter& adapter : adapters) adapters_[adapter.weight].push_back(&adapter);
    renamed_.resize(program.tensors.size());
    for (std::size_t i = 0; i < renamed_.size(); ++i) renamed_[i] = static_cast<TensorId>(i);
  }

  void run() {
    std::vector<Op> ops = std::move(program_->ops);
    program_->ops.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (TensorId& id : ops[i].inputs)
        if (id != program::kNone) id = renamed_[static_cast<std::size_t>(id)];
      const Op op = ops[i];
      program_->ops.push_back(op);
      const Adapters* adapters = adapters_of(op);
      if (adapters == nullptr) continue;
      const bool has_bias = i + 1 < ops.size() && ops[i + 1].is(ops::kBiasAdd) && !op.outputs.empty() &&
                            ops[i + 1].inputs[0] == op.outputs[0];
      TensorId y = op.outputs[0];
      if (has_bias && !scales(*adapters)) {  // magnitudes do not scale biases
        program_->ops.push_back(ops[++i]);
        y = ops[i].outputs[0];
      }
      TensorId sum = y;
      for (const Adapter* adapter : *adapters) sum = add(op, *adapter, sum);
      if (scales(*adapters)) sum = scale(op, *adapters, sum);
      renamed_.resize(program_->tensors.size(), program::kNone);
      renamed_[static_cast<std::size_t>(y)] = sum;
    }
    program_->ops.insert(program_->ops.begin(), setup_.begin(), setup_.end());
  }

 private:
  using Adapters = std::vector<const Adapter*>;

  /// DoRA is of all adapters or of none.
  static bool scales(const Adapters& adapters) { return adapters.front()->is_dora; }

  [[nodiscard]] const Adapters* adapters_of(const Op& op) const {
    if (!op.is(ops::kMatmul)) return nullptr;
    const auto found = adapters_.find(program_->tensor(op.inputs[1]).name);
    return found == adapters_.end() ? nullptr : &found->second;
  }

  TensorId weight(const std::string& name, const Shape& shape) {
    const auto [entry, is_new] = weights_.try_emplace(name, program::kNone);
    if (is_new) {
      entry->second =
          program_->add_tensor({.name = name, .shape = shape, .role = Role::weight, .full_precision = true});
    }
    return entry->second;
  }

  TensorId append(const Op& like, const program::OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                  const char* name, const Shape& shape, std::vector<std::int64_t> input_offset = {}) {
    Op op;
    op.def = &def;
    op.inputs = std::move(inputs);
    op.attrs = std::move(attrs);
    op.input_offset = std::move(input_offset);
    op.phase = like.phase;
    op.scope = like.scope + "/" + name;
    return program_->append(std::move(op), program_->tensor(like.outputs[0]).name + "." + name, {shape})
        .at(0);
  }

  static Attributes product(std::int64_t m, std::int64_t n, std::int64_t k) {
    return ops::matmul_attributes({.m = m, .n = n, .k = k, .trans_b = true});
  }

  TensorId a_of(const Adapter& adapter) { return weight(adapter.a(), {adapter.rank, adapter.in}); }
  TensorId b_of(const Adapter& adapter) { return weight(adapter.b(), {adapter.out, adapter.rank}); }

  /// y + factor (x A^T) B^T in the adapter's columns.
  TensorId add(const Op& like, const Adapter& adapter, TensorId y) {
    const std::int64_t rows = like.attrs.integer("m");
    const TensorId low = append(like, ops::kMatmul, {like.inputs[0], a_of(adapter)},
                                product(rows, adapter.rank, adapter.in), "lora_a", {rows, adapter.rank});
    const TensorId high = append(like, ops::kMatmul, {low, b_of(adapter)},
                                 product(rows, adapter.out, adapter.rank), "lora_b", {rows, adapter.out});
    const Attributes place{{"at", adapter.first}, {"n", adapter.out}, {"factor", adapter.factor()}};
    return append(like, ops::kAddColumns, {y, high}, place, "lora_add", program_->shape(y));
  }

  /// A [rank, in] times rows of a matrix in fp32: sums of rounded products would be rounded once more.
  TensorId append_products(const Op& like, const Adapter& adapter, TensorId rows, std::int64_t n,
                           std::int64_t first, const char* name) {
    const TensorId id =
        append(like, ops::kMatmul, {a_of(adapter), rows}, product(adapter.rank, n, adapter.in), name,
               {adapter.rank, n},
               is_packed_ ? std::vector<std::int64_t>() : std::vector<std::int64_t>{0, first * adapter.in});
    program_->tensor(id).full_precision = true;
    return id;
  }

  /// 1 / |W + factor B A| [out]
  TensorId append_inverse_norms(const Op& like, const Adapter& adapter) {
    const TensorId w = like.inputs[1];
    const TensorId products = is_packed_
                                  ? append_products(like, adapter, w, program_->shape(w)[0], 0, "dora_wa")
                                  : append_products(like, adapter, w, adapter.out, adapter.first, "dora_wa");
    const TensorId grams = append_products(like, adapter, a_of(adapter), adapter.rank, 0, "dora_aa");
    return append(like, ops::kInverseNorms, {squares_of(like, adapter), products, grams, b_of(adapter)},
                  {{"at", is_packed_ ? adapter.first : std::int64_t{0}}, {"factor", adapter.factor()}},
                  "dora_norms", {adapter.out});
  }

  /// A weight that an op of setup writes.
  TensorId squares_of(const Op& like, const Adapter& adapter) {
    const TensorId squares = weight(adapter.row_squares(), {adapter.out});
    if (!squares_.insert(squares).second) return squares;
    Op op;
    op.def = &ops::kRowSquares;
    op.inputs = {like.inputs[1]};
    op.attrs = {{"at", adapter.first}, {"n", adapter.out}};
    op.phase = program::Phase::setup;
    op.scope = like.scope + "/dora_squares";
    op.outputs = {squares};
    setup_.push_back(std::move(op));
    return squares;
  }

  /// y times m / |W + factor B A| in the columns of adapters. One op for all of them: gradients of magnitudes
  /// read y, and so one y is kept.
  TensorId scale(const Op& like, const Adapters& adapters, TensorId y) {
    const std::int64_t width = program_->shape(y)[-1];
    TensorId scales = program::kNone;
    for (const Adapter* adapter : adapters) {
      const TensorId norms = append_inverse_norms(like, *adapter);
      const TensorId magnitudes = weight(adapter->magnitude(), {adapter->out});
      scales = append(like, ops::kSetScales, {scales, magnitudes, norms},
                      {{"at", adapter->first}, {"width", width}}, "dora_scales", {width});
    }
    return append(like, ops::kScaleColumns, {y, scales}, {}, "dora_scale", program_->shape(y));
  }

  Program* program_;
  std::map<std::string, Adapters> adapters_;
  std::map<std::string, TensorId> weights_;
  std::set<TensorId> squares_;  ///< those that an op writes
  std::vector<Op> setup_;
  bool is_packed_;
  std::vector<TensorId> renamed_;  ///< by tensor: what later ops read instead
};

}  // namespace

void add_adapters(Program& forward, const std::vector<Adapter>& adapters, bool is_packed) {
  AdapterWriter(forward, adapters, is_packed).run();
}

void freeze(Program& step, program::GradientMap& gradients) {
  std::vector<bool> is_needed(step.tensors.size(), false);
  for (TensorId id = 0; id < static_cast<TensorId>(step.tensors.size()); ++id) {
    const program::Tensor& tensor = step.tensor(id);
    const TensorId gradient = tensor.role == Role::weight ? gradients.of(id) : program::kNone;
    if (gradient == program::kNone) continue;
    if (is_adapter(tensor.name)) {
      is_needed[static_cast<std::size_t>(gradient)] = true;
    } else {  // norms still write theirs, for it comes with the gradient of what they read
      step.tensor(gradient).role = Role::activation_gradient;
      gradients.set(id, program::kNone);
    }
  }
  const auto needs = [&](TensorId id) {
    return id != program::kNone &&
           (is_needed[static_cast<std::size_t>(id)] || program::is_persistent(step.tensor(id).role));
  };
  std::vector<bool> is_kept(step.ops.size(), true);
  for (std::size_t i = step.ops.size(); i-- > 0;) {
    const Op& op = step.ops[i];
    is_kept[i] = op.phase != program::Phase::backward || std::ranges::any_of(op.outputs, needs);
    if (!is_kept[i]) continue;
    for (const TensorId id : op.inputs)
      if (id != program::kNone) is_needed[static_cast<std::size_t>(id)] = true;
  }
  std::size_t at = 0;
  std::erase_if(step.ops, [&](const Op& /*op*/) { return !is_kept[at++]; });
}

}  // namespace rooflm::passes
