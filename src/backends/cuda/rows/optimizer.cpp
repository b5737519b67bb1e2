// Binds the optimizer step to its ops.
#include "backends/cuda/kernels/optimizer/optimizer.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/rows/rows.h"
#include "backends/cuda/summing_updates.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::backends::cuda {

/// kernels/loss_scale.cu: hyper' = hyper with hyper'[3] = 1 / scale, or 0 if norm is not finite; norm' = norm
/// / scale; the state is updated as program/loss_scale.h says. hyper, hyper' fp32 [4]; norm, norm' fp32 [1];
/// state fp32 [kLossScaleState]. Only submits. Throws std::runtime_error if the launch fails.
void launch_loss_scale(Stream stream, const float* hyper, const float* norm, float* state,
                       float* scaled_hyper, float* true_norm);

namespace {

using core::DType;

/// Whether everything is fp32.
bool all_f32(const OpView& v) {
  for (std::size_t i = 0; i < v.op.inputs.size(); ++i) {
    if (!v.inputs_are({i}, DType::f32)) return false;
  }
  return true;
}

bool is_gradient(const OpView& v, std::size_t input) {
  const DType dtype = v.in(input).dtype;
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// Whether the kernels support the dtypes and sizes of an update, whose moments are of `first` and `second`
/// in turn.
bool fits(const OpView& v, DType first = DType::f32, DType second = DType::f32) {
  constexpr std::int64_t kPlaneUnit = 8;
  const program::UpdateOperands at(v.op);
  if (!v.inputs_are({program::UpdateOperands::kHyper, program::UpdateOperands::kNorm}, DType::f32))
    return false;
  for (std::size_t i = 0; i < at.count(); ++i) {
    const program::Tensor& weight = v.in(at.weight_in(i));
    if (weight.dtype != DType::f32 || !is_gradient(v, at.gradient_in(i))) return false;
    if (weight.halves && weight.shape.numel() % kPlaneUnit != 0) return false;
    for (std::size_t k = 0; k < at.moments(); ++k) {
      if (!v.inputs_are({at.moment_in(i, k)}, k % 2 == 0 ? first : second)) return false;
    }
  }
  return true;
}

std::vector<std::int64_t> sizes_of(const std::vector<NormedTensor>& tensors) {
  std::vector<std::int64_t> sizes;
  for (const NormedTensor& tensor : tensors) sizes.push_back(tensor.count);
  return sizes;
}

/// Shared by all updates: the list of tensors, and where their operands are.
struct Update : program::UpdateOperands {
  std::vector<UpdatedTensor> shapes;  ///< without addresses
  program::Lane lane;
  UpdateStep step;

  explicit Update(const OpView& v)
      : UpdateOperands(v.op),
        lane(v.op.lane),
        step{.max_norm = v.number("max_norm"),
             .weight_decay = v.number("weight_decay"),
             .scaled = v.op.attrs.flag("scaled")} {
    if (moments() > 0) {
      step.beta1 = core::MovingAverage(v.op.attrs.number("beta1"));
      step.beta2 = core::MovingAverage(v.op.attrs.number("beta2"));
    }
    if (moments() > 1) step.eps = v.number("eps");
    for (std::size_t i = 0; i < count(); ++i) {
      const program::Tensor& weight = v.in(weight_in(i));
      shapes.push_back({.count = weight.shape.numel(),
                        .halves = weight.halves.value_or(DType::f32),
                        .gradient_dtype = v.in(gradient_in(i)).dtype});
      const bool is_copied = has_copies() && v.op.outputs.at(copy_out(i)) != program::kNone;
      if (is_copied) step.copy_dtype = v.out(copy_out(i)).dtype;
    }
  }

  [[nodiscard]] std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> counts;
    for (const UpdatedTensor& tensor : shapes) counts.push_back(tensor.count);
    return counts;
  }
  /// The stream of the update's lane.
  [[nodiscard]] cudaStream_t stream(const Context& context) const { return context.stream_of(lane); }
  [[nodiscard]] UpdateStep step_of(const KernelArgs& args) const {
    UpdateStep bound = step;
    bound.hyper = floats(args.in[kHyper]);
    bound.norm = floats(args.in[kNorm]);
    return bound;
  }
  [[nodiscard]] std::vector<UpdatedTensor> tensors_of(const KernelArgs& args) const {
    std::vector<UpdatedTensor> tensors = shapes;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      UpdatedTensor& tensor = tensors[i];
      tensor.parameter = args.out[weight_out(i)];
      tensor.gradient = args.in[gradient_in(i)];
      if (moments() > 0) tensor.moment1 = args.out[moment_out(i, 0)];
      if (moments() > 1) tensor.moment2 = args.out[moment_out(i, moments() / 2)];
      if (has_copies() && tensor.halves == DType::f32) tensor.copy = args.out[copy_out(i)];
    }
    return tensors;
  }
  /// Of moments of 8 bits.
  [[nodiscard]] std::vector<CodedTensor> coded_tensors_of(const KernelArgs& args) const {
    std::vector<CodedTensor> tensors;
    for (const UpdatedTensor& tensor : tensors_of(args)) {
      const std::size_t i = tensors.size();
      tensors.push_back({tensor, floats(args.out[moment_out(i, 1)]), floats(args.out[moment_out(i, 3)])});
    }
    return tensors;
  }
};

}  // namespace

/// The sum of squares of all inputs in fp64, or its root in fp32.
Kernel make_square_sum(const OpView& v) {
  std::vector<NormedTensor> shapes;
  for (std::size_t i = 0; i < v.op.inputs.size(); ++i) {
    if (!is_gradient(v, i)) return {};
    shapes.push_back({.count = v.in(i).shape.numel(), .dtype = v.in(i).dtype});
  }
  const bool is_root = v.op.is(program::ops::kGlobalNorm);
  if (!v.outputs_are({0}, is_root ? DType::f32 : DType::f64)) return {};
  const std::vector<std::int64_t> sizes = sizes_of(shapes);
  const std::size_t bytes = global_norm_workspace_bytes(sizes);
  // Overlapping ops need their own memory.
  const program::Lane lane = v.op.lane;
  const bool is_beside = lane != program::Lane::compute;
  const auto own = std::make_shared<DeviceMemory>();
  if (is_beside) *own = v.context->allocate(bytes);
  void* shared = is_beside ? nullptr : v.context->scratch(bytes);
  const auto run = [=, context = v.context](const KernelArgs& args) {
    std::vector<NormedTensor> tensors = shapes;
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].gradient = args.in[i];
    void* workspace = is_beside ? own->data() : shared;
    auto* square = is_root ? nullptr : static_cast<double*>(args.out[0]);
    launch_square_sum(context->stream_of(lane), tensors, square, is_root ? floats(args.out[0]) : nullptr,
                      workspace);
  };
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = global_norm_launches(sizes)}};
}

Kernel make_norm_of_squares(const OpView& v) {
  if (!v.inputs_are({0}, DType::f64) || !v.outputs_are({0}, DType::f32)) return {};
  return [context = v.context, count = v.in(0).shape.numel()](const KernelArgs& args) {
    launch_root(context->stream(), count, static_cast<const double*>(args.in[0]), floats(args.out[0]));
  };
}

/// Inputs: hyper, norm, state. Outputs: hyper, norm, state.
Kernel make_loss_scale(const OpView& v) {
  if (!all_f32(v)) return {};
  return [context = v.context](const KernelArgs& args) {
    launch_loss_scale(context->stream(), floats(args.in[0]), floats(args.in[1]), floats(args.out[2]),
                      floats(args.out[0]), floats(args.out[1]));
  };
}

namespace {

/// All gradients lie in the arena of the step.
PeerPlaces peers_of(const NcclGroups& groups, const std::vector<UpdatedTensor>& tensors) {
  std::vector<const void*> gradients;
  for (const UpdatedTensor& tensor : tensors) gradients.push_back(tensor.gradient);
  return groups.places_of(gradients);
}

using Launch = void (*)(Stream, const UpdateStep&, std::span<const UpdatedTensor>, const PeerPlaces&);

/// `groups` is needed where gradients are summed over ranks.
Kernel make_update(const OpView& v, Launch launch, const std::shared_ptr<NcclGroups>& groups = nullptr) {
  const bool is_narrow = v.op.is(program::ops::kAdamW) && fits(v, DType::bf16, DType::bf16);
  if (!is_narrow && !fits(v)) return {};
  Update update(v);
  update.step.half_moments = is_narrow;
  const std::int64_t launches = update_launches(update.sizes());
  return {[context = v.context, launch, groups, update = std::move(update)](const KernelArgs& args) {
            const std::vector<UpdatedTensor> tensors = update.tensors_of(args);
            const PeerPlaces peers = groups == nullptr ? PeerPlaces{} : peers_of(*groups, tensors);
            launch(update.stream(*context), update.step_of(args), tensors, peers);
          },
          {.launches = launches}};
}

}  // namespace

Kernel make_adamw(const OpView& v) { return make_update(v, launch_adamw); }
Kernel make_sgd(const OpView& v) { return make_update(v, launch_sgd); }
Kernel make_lion(const OpView& v) { return make_update(v, launch_lion); }

Kernel make_adamw_8bit(const OpView& v) {
  if (!fits(v, DType::i32, DType::f32)) return {};
  CodeTables tables{};
  for (const bool is_signed : {true, false}) {
    const core::Dynamic8Bit kind(is_signed);
    const int index = is_signed ? 0 : 1;
    std::ranges::copy(kind.values(), tables.values[index]);
    std::ranges::copy(kind.borders(), tables.borders[index]);
    std::ranges::copy(kind.first_codes(), tables.first_codes[index]);
  }
  const auto memory = std::make_shared<DeviceMemory>(v.context->allocate(sizeof tables));
  v.context->copy_in(memory->data(), &tables, sizeof tables);
  Update update(v);
  const std::int64_t launches = adamw_8bit_launches(update.sizes());
  return {[context = v.context, memory, update = std::move(update)](const KernelArgs& args) {
            launch_adamw_8bit(update.stream(*context), update.step_of(args), update.coded_tensors_of(args),
                              static_cast<const CodeTables*>(memory->data()));
          },
          {.workspace_bytes = sizeof tables, .launches = launches}};
}

std::vector<KernelRow> summing_updates(const std::shared_ptr<Context>& context,
                                       const std::shared_ptr<NcclGroups>& groups) {
  const auto row = [&](const program::OpDef& def, Launch launch) {
    return KernelRow{&def,
                     [context, groups, launch, name = std::string(def.name)](
                         const program::Program& program, const program::Op& op) -> Kernel {
                       if (!op.attrs.flag("sums") || groups->peers() == nullptr) return {};
                       Kernel kernel = make_update({program, op, context}, launch, groups);
                       kernel.info.name = name + ", sums over ranks";
                       return kernel;
                     }};
  };
  return {row(program::ops::kAdamW, launch_adamw), row(program::ops::kSgd, launch_sgd),
          row(program::ops::kLion, launch_lion)};
}

MakerRows optimizer_rows() {
  namespace ops = program::ops;
  return {{&ops::kGlobalNorm, make_square_sum, "square_sums"},
          {&ops::kSquareSum, make_square_sum, "square_sums"},
          {&ops::kNormOfSquares, make_norm_of_squares, "total_of"},
          {&ops::kLossScale, make_loss_scale, "loss_scale"},
          {&ops::kAdamW, make_adamw, "adamw"},
          {&ops::kAdamW8Bit, make_adamw_8bit, "adamw_8bit"},
          {&ops::kSgd, make_sgd, "sgd"},
          {&ops::kLion, make_lion, "lion"}};
}

}  // namespace rooflm::backends::cuda
