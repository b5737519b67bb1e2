// Shared by all backends: kernel lookup, and a stopwatch on the host's clock.
#include "backends/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <variant>

#include "backends/op_view.h"
#include "core/error.h"
#include "program/plain_form.h"
#include "program/scores.h"

namespace rooflm::backends {
namespace {

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(std::size_t marks) : marks_(marks) {}
  void mark(std::size_t index) override { marks_.at(index) = Clock::now(); }
  [[nodiscard]] double elapsed_s(std::size_t from, std::size_t to) const override {
    return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks_;
};

/// Maps the operands of a plain op to those of the fused op that it belongs to.
class PlainOperands {
 public:
  PlainOperands(const program::Op& fused, const program::Op& plain)
      : in_(find_all(fused, plain.inputs, plain.input_offset)),
        out_(find_all(fused, plain.outputs, plain.output_offset)),
        in_data_(in_.size()),
        out_data_(out_.size()) {}

  /// Valid until the next call.
  KernelArgs bind(const KernelArgs& args) {
    const auto fill = [&](const std::vector<Place>& places, std::vector<void*>& data) {
      for (std::size_t i = 0; i < places.size(); ++i) {
        const auto [kind, index] = places[i];
        data[i] = kind == Kind::none ? nullptr : (kind == Kind::input ? args.in : args.out)[index];
      }
    };
    fill(in_, in_data_);
    fill(out_, out_data_);
    return {.in = in_data_, .out = out_data_};
  }

 private:
  enum class Kind : std::uint8_t { none, input, output };
  struct Place {
    Kind kind = Kind::none;
    std::size_t index = 0;
  };

  static std::int64_t offset_at(const std::vector<std::int64_t>& offsets, std::size_t i) {
    return i < offsets.size() ? offsets[i] : 0;
  }
  static std::vector<Place> find_all(const program::Op& fused, const std::vector<program::TensorId>& ids,
                                     const std::vector<std::int64_t>& offsets) {
    std::vector<Place> places;
    for (std::size_t i = 0; i < ids.size(); ++i) places.push_back(find(fused, ids[i], offset_at(offsets, i)));
    return places;
  }
  static Place find(const program::Op& fused, program::TensorId id, std::int64_t offset) {
    if (id == program::kNone) return {};
    for (std::size_t i = 0; i < fused.outputs.size(); ++i) {
      if (fused.outputs[i] == id && offset_at(fused.output_offset, i) == offset) return {Kind::output, i};
    }
    for (std::size_t i = 0; i < fused.inputs.size(); ++i) {
      if (fused.inputs[i] == id && offset_at(fused.input_offset, i) == offset) return {Kind::input, i};
    }
    throw std::logic_error(
        fmt::format("a plain op of {} has an operand that is none of its own", fused.def->name));
  }

  std::vector<Place> in_, out_;
  std::vector<void*> in_data_, out_data_;
};

}  // namespace

core::DType compute_dtype(const program::Program& program, const program::Op& op) {
  const auto is_float = [&](program::TensorId id) {
    return id != program::kNone && program.tensor(id).dtype != core::DType::i32;
  };
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    const auto found = std::find_if(ids->begin(), ids->end(), is_float);
    if (found != ids->end()) return program.tensor(*found).dtype;
  }
  return core::DType::f32;
}

std::string kernel_name(std::string_view name, const program::Program& program, const program::Op& op) {
  const std::string_view dtype = core::name_of(compute_dtype(program, op));
  if (!name.ends_with('>')) return fmt::format("{}<{}>", name, dtype);
  name.remove_suffix(1);
  return fmt::format("{}, {}>", name, dtype);
}

std::string matmul_variant(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                           core::DType factors, core::DType result) {
  const std::string count = batch == 1 ? "" : fmt::format("{}x ", batch);
  const std::string_view to = factors == result ? "" : " -> ";
  return fmt::format("{}{}x{}x{} {}{}{}", count, m, n, k, core::name_of(factors), to,
                     factors == result ? "" : core::name_of(result));
}

KernelInfo combined(std::span<const Kernel> parts) {
  KernelInfo whole{.library = {}, .launches = 0};
  const auto append = [](std::string& text, const std::string& more) {
    if (more.empty() || text == more) return;
    text += (text.empty() ? "" : " + ") + more;
  };
  for (const auto& [run, part] : parts) {
    append(whole.name, part.name);
    append(whole.library, part.library);
    append(whole.variant, part.variant);
    whole.workspace_bytes = std::max(whole.workspace_bytes, part.workspace_bytes);
    if (whole.launches && part.launches) {
      *whole.launches += *part.launches;
    } else {
      whole.launches.reset();
    }
  }
  return whole;
}

std::unique_ptr<Stopwatch> Backend::make_stopwatch(std::size_t marks) const {
  return std::make_unique<HostStopwatch>(marks);
}

std::unique_ptr<Recording> Backend::record(const SubmitStep& /*submit*/, Overlap /*overlap*/) {
  return nullptr;
}

void Backend::add_kernels(std::vector<KernelRow> rows) {
  std::move(rows.begin(), rows.end(), std::back_inserter(table_));
}

void Backend::offer_collective_ways(std::vector<CollectiveWay> ways, SetWay set, std::string remark) {
  ways_ = std::move(ways);
  set_way_ = std::move(set);
  remark_on_ways_ = std::move(remark);
}

void Backend::prefer_kernels(std::vector<KernelRow> rows) {
  table_.insert(table_.begin(), std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
}

Kernel Backend::make_kernel(const program::Program& program, const program::Op& op) const {
  for (const KernelRow& row : table_) {
    if (row.op != op.def) continue;
    if (Kernel kernel = row.make(program, op)) return kernel;
  }
  if (Kernel kernel = make_plain_kernel(program, op)) return kernel;
  std::string dtypes;
  for (const program::TensorId id : op.inputs) {
    if (id != program::kNone) dtypes += fmt::format(" {}", core::name_of(program.tensor(id).dtype));
  }
  const std::string beyond = program::beyond_plain(op);
  throw core::Unavailable(fmt::format("{} has no kernel for {} in {} with inputs of{}{}{}", device(),
                                      op.def->name, op.scope, dtypes, beyond.empty() ? "" : " and ", beyond));
}

Kernel Backend::make_plain_kernel(const program::Program& program, const program::Op& op) const {
  std::vector<Kernel> kernels;
  std::vector<PlainOperands> operands;
  for (const program::Op& plain : program::plain_ops(program, op)) {
    kernels.push_back(make_kernel(program, plain));
    operands.emplace_back(op, plain);
  }
  if (kernels.empty()) return {};
  KernelInfo info = combined(kernels);
  const auto run = [kernels = std::move(kernels),
                    operands = std::move(operands)](const KernelArgs& args) mutable {
    for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i](operands[i].bind(args));
  };
  return {run, std::move(info)};
}

namespace {

template <class Number>
void append_bytes(std::string& text, const Number& number) {
  static_assert(std::is_trivially_copyable_v<Number>);
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

/// A key that is equal for ops with the same kernel: those that differ only in names, scopes, micro-batches,
/// and in which tensors of equal shape, dtype and role they use. Layers and micro-batches share it.
std::string kind_of(const program::Program& program, const program::Op& op) {
  std::string kind;
  append_bytes(kind, reinterpret_cast<std::uintptr_t>(op.def));
  append_bytes(kind, op.phase);
  append_bytes(kind, op.lane);
  for (const auto& [name, value] : op.attrs.entries()) {
    kind += name;
    append_bytes(kind, value.index());
    std::visit([&](const auto& typed) { append_bytes(kind, typed); }, value);
  }
  for (const auto* operands : {&op.inputs, &op.outputs}) {
    append_bytes(kind, operands->size());
    for (const program::TensorId id : *operands) {
      append_bytes(kind, id == program::kNone);
      if (id == program::kNone) continue;
      const program::Tensor& tensor = program.tensor(id);
      append_bytes(kind, tensor.dtype);
      append_bytes(kind, tensor.role);
      append_bytes(kind, tensor.halves.value_or(core::DType::f32));
      append_bytes(kind, tensor.shape.rank());
      for (const std::int64_t extent : tensor.shape.dims()) append_bytes(kind, extent);
    }
  }
  for (const auto* offsets : {&op.input_offset, &op.output_offset}) {
    append_bytes(kind, offsets->size());
    for (const std::int64_t offset : *offsets) append_bytes(kind, offset);
  }
  return kind;
}

/// The name is empty if the op has no kernel or its kernel gets no scratch memory.
KernelInfo describe_kernel(const Backend& backend, const program::Program& program, const program::Op& op) {
  try {
    return backend.make_kernel(program, op).info;
  } catch (const core::Unavailable&) {
    return {.library = {}};
  } catch (const core::OutOfMemory&) {
    return {.library = {}};
  } catch (const std::bad_alloc&) {
    return {.library = {}};
  }
}

}  // namespace

std::vector<KernelInfo> Backend::describe_kernels(const program::Program& program) const {
  std::vector<KernelInfo> kernels;
  kernels.reserve(program.ops.size());
  std::unordered_map<std::string, std::size_t> first;  // first op of each kind, as an index into `kernels`
  for (const program::Op& op : program.ops) {
    const auto [same, is_new] = first.try_emplace(kind_of(program, op), kernels.size());
    kernels.push_back(is_new ? describe_kernel(*this, program, op) : kernels[same->second]);
  }
  return kernels;
}

}  // namespace rooflm::backends
