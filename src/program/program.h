// A training step as data: a list of ops on named tensors. Passes rewrite it, engines run it, everybody reads
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "program/attributes.h"
#include "program/shard.h"

namespace rooflm::program {

class GradientContext;
class PlainForm;
class Program;
struct Op;

/// Index into Program::tensors.
using TensorId = int;
/// An optional input that is not there.
inline constexpr TensorId kNone = -1;

/// What a tensor is for; memory is reported by role.
enum class Role : std::uint8_t {
  input,            ///< written by the host before a run: tokens, targets, learning rate
  weight,           ///< a parameter, or its copy in the compute dtype; lives across steps
  optimizer_state,  ///< moments; lives across steps
  result,           ///< read by the host after a run: loss, gradient norm, logits
  cache,            ///< keys and values of the texts at hand; lives across steps
  gradient,         ///< d(loss)/d(weight)
  activation,       ///< produced and used inside one step
  activation_gradient,
  workspace,        ///< scratch of one op
  gathered_weight,  ///< a weight put together from the parts that ranks keep of it, for some ops
};
std::string_view name_of(Role role);
/// Persistent tensors keep their storage and contents from one run to the next.
constexpr bool is_persistent(Role role) {
  return role == Role::input || role == Role::weight || role == Role::optimizer_state ||
         role == Role::result || role == Role::cache;
}

/// Part of the step. `setup` ops run once after the weights were written, not in a step.
enum class Phase : std::uint8_t { setup, forward, backward, optimizer };
std::string_view name_of(Phase phase);

/// Where ops run one after the other, in the order of the program. `compute` is the main lane: an op of
/// another lane begins when the ops of `compute` before it in the program are done, and may then run beside
/// those that follow. What must be done before an op begins, beyond that, are its waits.
enum class Lane : std::uint8_t {
  compute,
  background,     ///< compute of low priority, on what `compute` leaves idle
  copy,           ///< between memories
  communication,  ///< between devices
  host,
};
inline constexpr std::size_t kLanes = 5;
std::string_view name_of(Lane lane);

/// What kind of work an op is: what times and rates are summed up by.
enum class Work : std::uint8_t {
  matmul,
  attention,
  norm,
  softmax,
  loss,
  embedding,
  elementwise,
  copy,
  optimizer,
  collective,
};
std::string_view name_of(Work work);

/// A dense row-major tensor.
struct Tensor {
  std::string name{};
  core::Shape shape{};
  core::DType dtype = core::DType::f32;
  Role role = Role::activation;
  /// Stays fp32 under mixed precision: statistics, losses, gradients of weights.
  bool full_precision = false;
  /// fp32 kept as two planes of 16 bits (core/halves.h), of which the first is the tensor in bf16.
  bool halved = false;
  /// A persistent tensor in whose storage this one lies, from the first byte on; kNone: it has its own.
  TensorId view_of = kNone;
  /// Of which tensor it is a part, and which: each entry splits what the one before left. Empty: it is whole.
  std::vector<Shard> shards{};
  [[nodiscard]] std::int64_t bytes() const {
    return shape.numel() * static_cast<std::int64_t>(core::size_of(dtype));
  }
  /// Bytes that are there because of this tensor.
  [[nodiscard]] std::int64_t own_bytes() const { return view_of == kNone ? bytes() : 0; }
};

/// What an op costs, counted from shapes, not measured. A multiply-add is 2 flop. Bytes are the least
/// traffic: each input read once, each output written once.
struct Cost {
  std::int64_t matmul_flop = 0;       ///< matrix products; causal attention counted in full (PaLM convention)
  std::int64_t elementwise_flop = 0;  ///< everything else; each op's file says what it counts
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t launches = 1;  ///< dispatches that a plain backend needs: looped products count each
  Cost& operator+=(const Cost& other);
  bool operator==(const Cost&) const = default;
};

/// The operands of an update of weights (program/update.h reads them).
struct UpdateLayout {
  std::size_t moments = 0;  ///< of the gradient, kept per weight
};

/// What kind of operation this is: pure descriptions, no device code. One file in program/ops/ for each
/// family.
struct OpDef {
  std::string_view name;
  Work work = Work::elementwise;
  /// Checks the inputs (throws core::UsageError naming the values) and returns the outputs: shape, role and
  /// full_precision; names and dtypes are filled in by the caller.
  std::vector<Tensor> (*infer)(const Program&, const Op&);
  /// FLOPs of one execution; bytes and launches are filled in by `cost_of` unless this sets them.
  Cost (*cost)(const Program&, const Op&);
  /// Emits the ops of the backward program; nullptr when there is no gradient.
  void (*gradient)(GradientContext&) = nullptr;
  /// Output 0 may take the place of this input when the input is not needed afterwards; -1 when never.
  int in_place_input = -1;
  /// Selective recompute redoes it instead of keeping its outputs (little arithmetic, much memory).
  bool cheap_to_recompute = false;
  /// Mixed precision gives it weights in the compute dtype; other ops read the fp32 masters.
  bool weights_in_compute_dtype = false;
  /// The optional input that is added to every row of the result; -1 when there is none.
  int bias_input = -1;
  /// The backward pass begins with it, as no gradient has to arrive for its own: losses, and what is sent to
  /// the rank that computes the loss.
  bool begins_backward = false;
  /// Set for ops that update weights.
  std::optional<UpdateLayout> update{};
  /// For a fused op: emits the plain ops that it equals (program/plain_form.h). nullptr when it is plain.
  void (*plain)(PlainForm&) = nullptr;
};

/// One operation. A tensor that appears in both inputs and outputs is updated in place.
struct Op {
  const OpDef* def = nullptr;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attrs;
  Phase phase = Phase::forward;
  std::string scope;    ///< "h.3/attention/qk"
  int micro_batch = 0;  ///< which micro-batch of gradient accumulation
  bool recomputed = false;
  Lane lane = Lane::compute;
  /// Ops of other lanes than `compute` and its own, earlier in the program, that must be done before it
  /// begins, as indices into Program::ops. Passes that insert, remove or move ops run before the pass that
  /// sets them.
  std::vector<int> waits{};
  /// Element offset of each operand when the op works on a part of it; empty means all zero.
  std::vector<std::int64_t> input_offset;
  std::vector<std::int64_t> output_offset;
  [[nodiscard]] bool is(const OpDef& other) const { return def == &other; }
};

/// A list of ops on tensors. Open data: passes rewrite it; `check` says whether it still makes sense.
class Program {
 public:
  std::vector<Tensor> tensors;
  std::vector<Op> ops;

  TensorId add_tensor(Tensor tensor);
  [[nodiscard]] const Tensor& tensor(TensorId id) const { return tensors.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] Tensor& tensor(TensorId id) { return tensors.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] const core::Shape& shape(TensorId id) const { return tensor(id).shape; }
  /// First tensor of that name and a persistent role, or kNone. Looks at all tensors.
  [[nodiscard]] TensorId find(std::string_view name) const;

  /// Appends an op whose `def`, `inputs`, `attrs`, `phase` and `scope` are set; creates and returns its
  /// outputs, named `name` (the second and later ones `name.1`, ...). `shapes` replaces the inferred shapes
  /// of the same number of elements. Throws core::UsageError when the shapes do not fit. The reference is
  /// valid until the list of ops changes.
  const std::vector<TensorId>& append(Op op, const std::string& name,
                                      const std::vector<core::Shape>& shapes = {});
  /// Appends an op that writes existing tensors.
  void append_to(Op op, std::vector<TensorId> outputs);
};

/// The cost of an op: FLOPs from its definition, bytes from its operands.
Cost cost_of(const Program& program, const Op& op);

/// For each op, by when it is done for certain: itself on the lane `compute`; otherwise the first op of
/// `compute` that waits for it, directly or by way of later ops of its lane or of other lanes; the number of
/// ops when none does. Until then its operands must stay as they are.
std::vector<int> done_by(const Program& program);

/// Throws std::logic_error when an op reads a transient tensor before any op wrote it, names a tensor that
/// does not exist, or its outputs disagree with `infer`; when a wait is not for an earlier op of a third
/// lane, or when nothing waits for an op that runs beside others. Passes call it in tests, engines when they
/// are made.
void check(const Program& program);

}  // namespace rooflm::program
