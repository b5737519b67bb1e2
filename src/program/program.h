// A training step as data: a list of ops on named tensors. Passes rewrite it; engines, the cost model and the
// planner read it.
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
/// Stands for an absent optional input.
inline constexpr TensorId kNone = -1;

/// What a tensor is for; memory is reported by role.
enum class Role : std::uint8_t {
  input,            ///< written by the host before a run: tokens, targets, learning rate
  weight,           ///< a parameter, or its copy in the compute dtype; lives across steps
  optimizer_state,  ///< moments; lives across steps
  result,           ///< read by the host after a run: loss, gradient norm, logits
  cache,            ///< keys and values of the current texts; lives across steps
  gradient,         ///< d(loss)/d(weight)
  activation,       ///< produced and consumed within one step
  activation_gradient,
  workspace,        ///< scratch of one op
  gathered_weight,  ///< a weight gathered from the ranks' parts for some ops
};
inline constexpr std::size_t kRoles = 10;
std::string_view name_of(Role role);
/// Persistent tensors keep their storage and contents from one run to the next.
constexpr bool is_persistent(Role role) {
  return role == Role::input || role == Role::weight || role == Role::optimizer_state ||
         role == Role::result || role == Role::cache;
}

/// Part of the step. `setup` ops run once, after the weights are written, and not in a step.
enum class Phase : std::uint8_t { setup, forward, backward, optimizer };
std::string_view name_of(Phase phase);

/// A queue of ops that run one at a time in program order. `compute` is the main lane. An op on another lane
/// may begin as soon as the preceding `compute` ops are done, and may then overlap the following ones. Its
/// other dependencies are its waits (Op::waits).
enum class Lane : std::uint8_t {
  compute,
  background,     ///< low-priority compute on multiprocessors that `compute` leaves idle
  copy,           ///< between memories (copy engines)
  communication,  ///< between devices (collectives)
  host,
};
inline constexpr std::size_t kLanes = 5;
std::string_view name_of(Lane lane);

/// The kind of work of an op; times and rates are summed by it.
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
  /// Stays fp32 under mixed precision: statistics, losses, weight gradients.
  bool full_precision = false;
  /// fp32 stored as two planes of 16 bits (core/halves.h); the first plane is the tensor in this dtype, bf16
  /// or fp16.
  std::optional<core::DType> halves{};
  /// The persistent tensor whose storage this one shares, from its first byte on; kNone: it has its own.
  TensorId view_of = kNone;
  /// How the tensor was split off a whole one. Each entry splits what the previous one left. Empty: it is
  /// whole.
  std::vector<Shard> shards{};
  [[nodiscard]] std::int64_t bytes() const {
    if (core::is_packed(dtype)) return core::packed_bytes(dtype, shape.numel(), shape[-1]);
    return shape.numel() * static_cast<std::int64_t>(core::size_of(dtype));
  }
  /// Bytes of storage that this tensor adds: 0 for a view.
  [[nodiscard]] std::int64_t own_bytes() const { return view_of == kNone ? bytes() : 0; }
};

/// The cost of an op, computed from shapes. A multiply-add counts 2 FLOP. Bytes are the minimum traffic: each
/// input read once, each output written once.
struct Cost {
  std::int64_t matmul_flop = 0;       ///< matmuls; causal attention counts in full (PaLM convention)
  std::int64_t elementwise_flop = 0;  ///< everything else; each op's file says what it counts
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t launches = 1;  ///< kernel launches of a plain backend: each matmul of a looped batch counts
  Cost& operator+=(const Cost& other);
  bool operator==(const Cost&) const = default;
};

/// Operands of a weight update (read by program/update.h).
struct UpdateLayout {
  std::size_t moments = 0;  ///< optimizer moments per weight
};

/// The definition of an op: pure descriptions, no device code. program/ops/ has one file per family.
struct OpDef {
  std::string_view name;
  Work work = Work::elementwise;
  /// Checks the inputs (throws core::UsageError with the values) and returns the outputs with shape, role and
  /// full_precision set; the caller fills in names and dtypes.
  std::vector<Tensor> (*infer)(const Program&, const Op&);
  /// FLOPs of one execution. `cost_of` fills in bytes and launches unless this sets them.
  Cost (*cost)(const Program&, const Op&);
  /// Emits the backward ops; nullptr if the op has no gradient.
  void (*gradient)(GradientContext&) = nullptr;
  /// Output 0 may overwrite this input in place if nothing reads the input afterwards; -1: never.
  int in_place_input = -1;
  /// Selective recompute repeats it instead of keeping its outputs (few FLOPs, much memory).
  bool cheap_to_recompute = false;
  /// Under mixed precision it reads weights in the compute dtype; other ops read the fp32 masters.
  bool weights_in_compute_dtype = false;
  /// The optional input that is added to every row of the result; -1: none.
  int bias_input = -1;
  /// The backward pass begins at this op, without an incoming gradient: losses, and sends to the stage that
  /// computes the loss.
  bool begins_backward = false;
  /// Set for ops that update weights.
  std::optional<UpdateLayout> update{};
  /// For a fused op: emits the equivalent plain ops (program/plain_form.h). nullptr if it is plain.
  void (*plain)(PlainForm&) = nullptr;
};

/// One operation. A tensor in both inputs and outputs is updated in place.
struct Op {
  const OpDef* def = nullptr;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attrs;
  Phase phase = Phase::forward;
  std::string scope;    ///< "h.3/attention/qk"
  int micro_batch = 0;  ///< index of the gradient-accumulation micro-batch
  bool recomputed = false;
  Lane lane = Lane::compute;
  /// Indices into Program::ops of earlier ops that must be done before this one begins. Only ops on lanes
  /// other than `compute` and this op's own are listed. The pass that sets them must come after all passes
  /// that insert, remove or move ops.
  std::vector<int> waits{};
  /// Element offset of each operand when the op works on a part of it; empty: all zero.
  std::vector<std::int64_t> input_offset;
  std::vector<std::int64_t> output_offset;
  [[nodiscard]] bool is(const OpDef& other) const { return def == &other; }
};

/// A list of ops on tensors. Plain open data: passes rewrite it, `check` verifies that it is consistent.
class Program {
 public:
  std::vector<Tensor> tensors;
  std::vector<Op> ops;

  TensorId add_tensor(Tensor tensor);
  [[nodiscard]] const Tensor& tensor(TensorId id) const { return tensors.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] Tensor& tensor(TensorId id) { return tensors.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] const core::Shape& shape(TensorId id) const { return tensor(id).shape; }
  /// The first tensor with that name and a persistent role, or kNone. Linear search.
  [[nodiscard]] TensorId find(std::string_view name) const;

  /// Appends an op whose `def`, `inputs`, `attrs`, `phase` and `scope` are set. Creates its outputs, named
  /// `name`, `name.1`, `name.2`, ..., and returns them. `shapes` overrides the inferred shapes with others of
  /// the same number of elements. Throws core::UsageError if the shapes do not fit. The reference is valid
  /// until the list of ops changes.
  const std::vector<TensorId>& append(Op op, const std::string& name,
                                      const std::vector<core::Shape>& shapes = {});
  /// Appends an op that writes existing tensors.
  void append_to(Op op, std::vector<TensorId> outputs);
};

/// The cost of an op: FLOPs from its definition, bytes from its operands.
Cost cost_of(const Program& program, const Op& op);

/// For each op, the index of the `compute` op by which it is guaranteed to be done: itself on the lane
/// `compute`; otherwise the first `compute` op that waits for it, directly or through later ops of its lane
/// or other lanes; ops.size() if none does. Until then its operands must not change.
std::vector<int> done_by(const Program& program);

/// Throws std::logic_error if an op reads a transient tensor before it is written, names a tensor that does
/// not exist, or has outputs that disagree with `infer`.
void check_ops(const Program& program);
/// Also if a wait is not for an earlier op on another non-compute lane, or if nothing waits for an op on
/// another lane: of a finished program, for the last pass sets the waits. Engines call it on construction.
void check(const Program& program);

}  // namespace rooflm::program
