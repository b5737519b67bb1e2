// fp8_cast: fp8 copies of a tensor, as stored and transposed; the same for the results of swiglu, its
// gradient and norms, which are computed first; fp8_scales: the scales of the next step.
#include "program/fp8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/producers.h"
#include "core/f8.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using program::kFp8Amax;
using program::kFp8Scale;

/// The largest magnitude, as the bits of a float. The bits of NaN compare above all others.
class LargestMagnitude {
 public:
  void add(const float* values, std::int64_t count) {
    std::uint32_t own = 0;
    for (std::int64_t i = 0; i < count; ++i)
      own = std::max(own, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
    std::uint32_t seen = bits_.load(std::memory_order_relaxed);
    while (own > seen && !bits_.compare_exchange_weak(seen, own, std::memory_order_relaxed)) {
    }
  }
  [[nodiscard]] float get() const { return std::bit_cast<float>(bits_.load()); }

 private:
  std::atomic<std::uint32_t> bits_{0};
};

/// Operands of the cast; the copies may be absent.
template <class F8>
struct Cast {
  std::int64_t rows = 0, cols = 0;
  F8* as_stored = nullptr;
  F8* transposed = nullptr;
  float scale = 1;

  void row(std::int64_t r, const float* values) const {
    for (std::int64_t c = 0; c < cols; ++c) {
      const F8 element(values[c] * scale);
      if (as_stored != nullptr) as_stored[r * cols + c] = element;
      if (transposed != nullptr) transposed[c * rows + r] = element;
    }
  }
};

template <class F8>
Kernel make_cast_to(const OpView& v) {
  const std::int64_t rows = v.integer("rows");
  const std::int64_t cols = v.integer("cols");
  const bool is_current = v.op.attrs.flag("current");
  return [=, x = in_operand<float>(v, 0, cols)](const KernelArgs& args) {
    auto* slot = static_cast<float*>(args.out[2]);
    if (is_current) std::fill_n(slot, program::kFp8Slot, 0.0F);
    LargestMagnitude largest;
    for_rows(rows, [&](std::int64_t r) { largest.add(x.read(args.in[0], r * cols, cols), cols); });
    largest.add(slot + kFp8Amax, 1);
    const float amax = slot[kFp8Amax] = largest.get();
    const bool is_unset = slot[kFp8Scale] == 0;
    if (is_unset && std::isfinite(amax) && amax > 0) {
      program::fp8_set_scale(slot, program::fp8_scale_for(amax, F8::kLargest));
    }
    const Cast<F8> cast{rows, cols, static_cast<F8*>(args.out[0]), static_cast<F8*>(args.out[1]),
                        slot[kFp8Scale]};
    for_rows(rows, [&](std::int64_t r) { cast.row(r, x.read(args.in[0], r * cols, cols)); });
  };
}

}  // namespace

Kernel make_fp8_cast(const OpView& v) {
  if (v.in(0).dtype == DType::f64) return {};
  return v.op.attrs.flag("e5m2") ? make_cast_to<core::F8E5M2>(v) : make_cast_to<core::F8E4M3>(v);
}

namespace {

/// The op that produces the tensor that is cast. `adds`: it first adds two inputs and stores the sum, too.
struct Producer {
  const program::OpDef* def;
  Kernel (*make)(const OpView&);
  bool adds = false;
};

constexpr std::size_t kOthers = 3;  // index of the producer's other outputs, after the copies and the slot

/// Runs `producer` into memory of the kernel's own, then casts the result.
Kernel make_cast_of(const OpView& v, const Producer& producer) {
  const std::size_t inputs = v.op.inputs.size() - (v.op.attrs.flag("current") ? 0 : 1);
  const std::size_t summed = producer.adds ? 2 : 0;
  program::Program parts;
  program::Op add, make, cast;
  add.def = &program::ops::kAdd;
  make.def = producer.def;
  cast.def = &program::ops::kFp8Cast;
  make.attrs = cast.attrs = v.op.attrs;
  for (std::size_t i = 0; i < summed; ++i) add.inputs.push_back(parts.add_tensor(v.in(i)));
  const program::TensorId made = parts.add_tensor(
      {.name = "made", .shape = {v.integer("rows"), v.integer("cols")}, .dtype = v.in(0).dtype});
  make.outputs = cast.inputs = {made};
  for (std::size_t i = kOthers; i < v.op.outputs.size(); ++i) {
    const bool is_sum = producer.adds && i == kOthers;
    (is_sum ? add : make).outputs.push_back(parts.add_tensor(v.out(i)));
  }
  if (producer.adds) make.inputs = add.outputs;
  for (std::size_t i = summed; i < inputs; ++i) make.inputs.push_back(parts.add_tensor(v.in(i)));

  const Kernel sum = producer.adds ? make_add({parts, add, v.context}) : Kernel{};
  const Kernel norm = producer.make({parts, make, v.context});
  const Kernel round = make_fp8_cast({parts, cast, v.context});
  if (!norm || !round) return {};
  const auto bytes = static_cast<std::int64_t>(parts.tensor(made).bytes());
  const auto memory = aligned_array<std::byte>(bytes);
  const auto run = [=](const KernelArgs& args) {
    std::vector<void*> to(args.out.begin() + kOthers, args.out.end());
    std::vector<void*> from(args.in.begin() + static_cast<std::ptrdiff_t>(summed),
                            args.in.begin() + static_cast<std::ptrdiff_t>(inputs));
    if (summed > 0) {
      sum({.in = args.in.first(summed), .out = std::span(to).first(1)});
      from.insert(from.begin(), to.front());
      to.front() = memory.get();
    } else {
      to.insert(to.begin(), memory.get());
    }
    norm({.in = from, .out = to});
    std::vector<void*> cast_in{memory.get()};
    cast_in.insert(cast_in.end(), args.in.begin() + static_cast<std::ptrdiff_t>(inputs), args.in.end());
    round({.in = cast_in, .out = args.out.first(kOthers)});
  };
  return {run, {.workspace_bytes = bytes, .launches = producer.adds ? 3 : 2}};
}

}  // namespace

Kernel make_swiglu_fp8(const OpView& v) { return make_cast_of(v, {&program::ops::kSwiGlu, make_swiglu}); }

Kernel make_swiglu_backward_fp8(const OpView& v) {
  return make_cast_of(v, {&program::ops::kSwiGluBackward, make_swiglu_backward});
}

Kernel make_layernorm_fp8(const OpView& v) {
  return make_cast_of(v, {&program::ops::kLayerNorm, make_layernorm, false});
}
Kernel make_add_layernorm_fp8(const OpView& v) {
  return make_cast_of(v, {&program::ops::kLayerNorm, make_layernorm, true});
}
Kernel make_rmsnorm_fp8(const OpView& v) {
  return make_cast_of(v, {&program::ops::kRmsNorm, make_rmsnorm, false});
}
Kernel make_add_rmsnorm_fp8(const OpView& v) {
  return make_cast_of(v, {&program::ops::kRmsNorm, make_rmsnorm, true});
}

Kernel make_fp8_scales(const OpView& v) {
  const std::int64_t slots = v.in(0).shape.numel() / program::kFp8Slot;
  const bool is_e5m2 = v.op.attrs.flag("e5m2_gradients");
  return [slots, is_e5m2](const KernelArgs& args) {
    auto* state = static_cast<float*>(args.out[0]);
    for (std::int64_t i = 0; i < slots; ++i) {
      const auto operand = static_cast<program::Fp8Operand>(i % program::kFp8Operands);
      const bool is_gradient = operand == program::Fp8Operand::gradient;
      program::fp8_next_scale(state + i * program::kFp8Slot, program::fp8_largest(is_e5m2 && is_gradient));
    }
  };
}

MakerRows fp8_rows() {
  namespace ops = program::ops;
  return {{&ops::kFp8Cast, make_fp8_cast, "reference::fp8_cast"},
          {&ops::kSwiGluFp8, make_swiglu_fp8, "reference::swiglu_fp8"},
          {&ops::kSwiGluBackwardFp8, make_swiglu_backward_fp8, "reference::swiglu_backward_fp8"},
          {&ops::kLayerNormFp8, make_layernorm_fp8, "reference::layernorm_fp8"},
          {&ops::kAddLayerNormFp8, make_add_layernorm_fp8, "reference::add_layernorm_fp8"},
          {&ops::kRmsNormFp8, make_rmsnorm_fp8, "reference::rmsnorm_fp8"},
          {&ops::kAddRmsNormFp8, make_add_rmsnorm_fp8, "reference::add_rmsnorm_fp8"},
          {&ops::kFp8Scales, make_fp8_scales, "reference::fp8_scales"}};
}

}  // namespace rooflm::backends::cpu::reference
