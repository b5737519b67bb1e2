// The optimizer step, bound to ops.
#include <utility>
#include <vector>

#include "backends/cuda/kernel_rows.h"
#include "backends/cuda/kernels/loss_scale.h"
#include "backends/cuda/kernels/optimizer.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Everything from input `first` on is fp32.
bool all_f32(const OpView& v, std::size_t first) {
  for (std::size_t i = first; i < v.op.inputs.size(); ++i) {
    if (!inputs_are(v, {i}, DType::f32)) return false;
  }
  return true;
}

/// Elements of every `stride`th input from `first` on.
std::vector<std::int64_t> sizes_of(const OpView& v, std::size_t first, std::size_t stride) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = first; i < v.op.inputs.size(); i += stride) sizes.push_back(v.in(i).shape.numel());
  return sizes;
}

/// What adamw and sgd share: the list of tensors with their operands' places.
struct Update {
  std::size_t inputs_each, outputs_each;
  std::vector<std::int64_t> sizes;
  bool has_copies, runs_beside;
  UpdateStep step;

  Update(const OpView& v, std::size_t inputs, std::size_t outputs)
      : inputs_each(inputs),
        outputs_each(outputs),
        sizes(sizes_of(v, 2, inputs)),
        has_copies(v.op.attrs.flag("copies")),
        runs_beside(v.op.attrs.flag("beside")),
        step{.max_norm = v.number("max_norm"),
             .weight_decay = v.number("weight_decay"),
             .scaled = v.op.attrs.flag("scaled")} {
    for (std::size_t i = outputs * sizes.size(); i < v.op.outputs.size(); ++i) {
      if (v.op.outputs[i] != program::kNone) step.copy_dtype = v.out(i).dtype;
    }
  }

  /// The stream that the update belongs in.
  [[nodiscard]] cudaStream_t stream(const Context& context) const {
    return runs_beside ? context.fork() : context.stream();
  }
  [[nodiscard]] UpdateStep step_of(const KernelArgs& args) const {
    UpdateStep bound = step;
    bound.hyper = floats(args.in[0]);
    bound.norm = floats(args.in[1]);
    return bound;
  }
  [[nodiscard]] std::vector<UpdatedTensor> tensors_of(const KernelArgs& args) const {
    std::vector<UpdatedTensor> tensors(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      UpdatedTensor& tensor = tensors[i];
      tensor.count = sizes[i];
      tensor.parameter = floats(args.out[outputs_each * i]);
      tensor.gradient = floats(args.in[2 + inputs_each * i + 1]);
      if (outputs_each > 1) {
        tensor.moment1 = floats(args.out[outputs_each * i + 1]);
        tensor.moment2 = floats(args.out[outputs_each * i + 2]);
      }
      if (has_copies) tensor.copy = args.out[outputs_each * sizes.size() + i];
    }
    return tensors;
  }
};

}  // namespace

Kernel make_global_norm(const OpView& v) {
  if (!all_f32(v, 0) || !outputs_are(v, {0}, DType::f32)) return {};
  const auto sizes = sizes_of(v, 0, 1);
  void* workspace = v.context->scratch(global_norm_workspace_bytes(sizes));
  return [=, context = v.context](const KernelArgs& args) {
    std::vector<NormedTensor> tensors;
    for (std::size_t i = 0; i < sizes.size(); ++i) tensors.push_back({sizes[i], floats(args.in[i])});
    launch_global_norm(context->stream(), tensors, floats(args.out[0]), workspace);
  };
}

/// Inputs: hyper, norm, state. Outputs: hyper, norm, state.
Kernel make_loss_scale(const OpView& v) {
  if (!all_f32(v, 0)) return {};
  return [context = v.context](const KernelArgs& args) {
    launch_loss_scale(context->stream(), floats(args.in[0]), floats(args.in[1]), floats(args.out[2]),
                      floats(args.out[0]), floats(args.out[1]));
  };
}

Kernel make_adamw(const OpView& v) {
  constexpr std::size_t kInputs = 4;
  constexpr std::size_t kOutputs = 3;
  if (!all_f32(v, 0)) return {};
  Update update(v, kInputs, kOutputs);
  update.step.beta1 = v.number("beta1");
  update.step.beta2 = v.number("beta2");
  update.step.eps = v.number("eps");
  return [context = v.context, update = std::move(update)](const KernelArgs& args) {
    launch_adamw(update.stream(*context), update.step_of(args), update.tensors_of(args));
  };
}

Kernel make_sgd(const OpView& v) {
  constexpr std::size_t kInputs = 2;
  if (!all_f32(v, 0)) return {};
  return [context = v.context, update = Update(v, kInputs, 1)](const KernelArgs& args) {
    launch_sgd(update.stream(*context), update.step_of(args), update.tensors_of(args));
  };
}

}  // namespace rooflm::backends::cuda
