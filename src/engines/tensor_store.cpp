// Persistent tensors by name.
#include "engines/tensor_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "core/elements.h"
#include "core/halves.h"
#include "core/packed_weights.h"
#include "program/groups.h"

namespace rooflm::engines {
namespace {

/// Large tensors are copied to and from the device in pieces, so that the host needs no second copy of a
/// tensor. Each piece is made by all threads, who wait for each other after it: where other processes use the
/// cores too, that takes milliseconds, so pieces are not small.
constexpr std::size_t kPieceElements = std::size_t{1} << 22U;

/// Splits fp32 numbers into one plane of upper halves, of `dtype`, followed by one of lower halves.
void split(std::span<const std::byte> floats, core::DType dtype, std::vector<std::uint16_t>& planes) {
  const std::size_t n = floats.size() / sizeof(float);
  planes.resize(2 * n);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < n; ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + i * sizeof value, sizeof value);
    const core::Halves halves = core::split_in_halves(value, dtype);
    planes[i] = halves.upper;
    planes[n + i] = halves.lower;
  }
}

/// The inverse of split.
void join(std::span<const std::uint16_t> planes, core::DType dtype, std::span<std::byte> floats) {
  const std::size_t n = planes.size() / 2;
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < n; ++i) {
    const float value = core::join_halves({.upper = planes[i], .lower = planes[n + i]}, dtype);
    std::memcpy(floats.data() + i * sizeof value, &value, sizeof value);
  }
}

/// A weight in 16 bits (passes::narrow_weights).
bool is_narrow(const program::Tensor& tensor) {
  return tensor.role == program::Role::weight &&
         (tensor.dtype == core::DType::bf16 || tensor.dtype == core::DType::f16);
}

core::PackedMatrix packed(const program::Tensor& tensor, const std::byte* data) {
  const std::int64_t width = tensor.shape[-1];
  return {.dtype = tensor.dtype, .rows = tensor.shape.numel() / width, .width = width, .data = data};
}

/// Where the rank's part of a tensor begins, when it is one range of elements of the whole.
std::optional<std::int64_t> begin_of_range(const program::Tensor& tensor) {
  if (tensor.shards.empty()) return 0;
  const program::Shard& shard = tensor.shards.front();
  if (tensor.shards.size() > 1 || shard.axis >= 0) return std::nullopt;
  if (shard.axis == program::Shard::kOwner) return 0;
  return program::part_of(shard.whole.numel(), shard.parts, shard.index, program::kPartUnit).begin;
}

}  // namespace

TensorStore::Entry& TensorStore::bind(const program::Tensor& tensor, backends::Reach reach) {
  const auto bytes = static_cast<std::size_t>(tensor.bytes());
  if (const auto found = entries_.find(tensor.name); found != entries_.end()) {
    Entry& entry = found->second;
    if (entry.tensor.shape != tensor.shape || entry.tensor.dtype != tensor.dtype) {
      throw std::logic_error(fmt::format("tensor {} is {} {} in the store, the program wants {} {}",
                                         tensor.name, core::name_of(entry.tensor.dtype),
                                         entry.tensor.shape.str(), core::name_of(tensor.dtype),
                                         tensor.shape.str()));
    }
    if (tensor.halves && !entry.tensor.halves) {
      const std::vector<float> values = read<float>(tensor.name);
      entry.tensor.halves = tensor.halves;
      write<float>(tensor.name, values);
    }
    return entry;
  }
  Entry entry{tensor, backends::Allocation(*backend_, bytes, reach)};
  backend_->zero(entry.memory.data(), bytes);
  return entries_.emplace(tensor.name, std::move(entry)).first->second;
}

const TensorStore::Entry& TensorStore::at(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw std::logic_error("no tensor " + name + " in the store");
  return found->second;
}

std::size_t TensorStore::host_bytes(const Entry& entry) {
  if (core::is_packed(entry.tensor.dtype))
    return static_cast<std::size_t>(entry.tensor.shape.numel()) * sizeof(float);
  return entry.memory.bytes() * (is_narrow(entry.tensor) ? 2 : 1);
}

void TensorStore::write_bytes(const std::string& name, std::span<const std::byte> bytes) {
  const Entry& entry = at(name);
  if (bytes.size() != host_bytes(entry)) {
    throw std::logic_error(fmt::format("{} holds {} bytes, not {}", name, host_bytes(entry), bytes.size()));
  }
  if (core::is_packed(entry.tensor.dtype)) {
    const core::PackedMatrix form = packed(entry.tensor, nullptr);
    std::vector<std::byte> codes(entry.memory.bytes());
    core::pack(form.dtype, form.rows, form.width,
               {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)}, codes.data());
    return write_packed(name, codes);
  }
  if (!entry.tensor.halves && !is_narrow(entry.tensor))
    return backend_->copy_in(entry.memory.data(), bytes.data(), bytes.size());
  std::vector<std::uint16_t> planes;
  constexpr std::size_t kPieceBytes = kPieceElements * sizeof(float);
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes)
    write_range(entry, at / sizeof(float), bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)),
                planes);
}

void TensorStore::write_packed(const std::string& name, std::span<const std::byte> codes) {
  const Entry& entry = at(name);
  if (!core::is_packed(entry.tensor.dtype) || codes.size() != entry.memory.bytes())
    throw std::logic_error(fmt::format("{} is no packed weight of {} bytes", name, codes.size()));
  backend_->copy_in(entry.memory.data(), codes.data(), codes.size());
}

void TensorStore::write_range(const Entry& entry, std::size_t first, std::span<const std::byte> floats,
                              std::vector<std::uint16_t>& planes) {
  auto* const to = static_cast<std::byte*>(entry.memory.data());
  if (is_narrow(entry.tensor)) {
    planes.resize(floats.size() / sizeof(float));
    core::store_elements(reinterpret_cast<const float*>(floats.data()), entry.tensor.dtype, planes.data(), 0,
                         static_cast<std::int64_t>(planes.size()));
    return backend_->copy_in(to + first * sizeof(std::uint16_t), planes.data(), floats.size() / 2);
  }
  if (!entry.tensor.halves)
    return backend_->copy_in(to + first * sizeof(float), floats.data(), floats.size());
  split(floats, *entry.tensor.halves, planes);
  const std::size_t bytes = floats.size() / 2;  // of one plane
  const std::size_t plane = entry.memory.bytes() / 2;
  backend_->copy_in(to + first * sizeof(std::uint16_t), planes.data(), bytes);
  backend_->copy_in(to + plane + first * sizeof(std::uint16_t), planes.data() + planes.size() / 2, bytes);
}

void TensorStore::write_from(const std::string& name, const ValueSource& source) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  const Entry& entry = found->second;
  const std::optional<std::int64_t> begin = begin_of_range(entry.tensor);
  // Elements that lie apart are picked from the whole, and scales are those of the whole.
  if (!begin || core::is_packed(entry.tensor.dtype)) {
    const auto elements = static_cast<std::size_t>(program::whole_shape(entry.tensor).numel());
    const auto memory = std::make_unique_for_overwrite<float[]>(elements);
    const std::span<float> whole(memory.get(), elements);
    source(0, whole);
    return write_part(name, whole);
  }
  const auto elements = static_cast<std::size_t>(entry.tensor.shape.numel());
  std::vector<float> piece(std::min(elements, kPieceElements));
  std::vector<std::uint16_t> planes;
  for (std::size_t at = 0; at < elements; at += kPieceElements) {
    const std::span<float> values = std::span(piece).first(std::min(kPieceElements, elements - at));
    source(*begin + static_cast<std::int64_t>(at), values);
    write_range(entry, at, std::as_bytes(values), planes);
  }
}

void TensorStore::write_part(const std::string& name, std::span<const float> whole) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  const program::Tensor& tensor = found->second.tensor;
  if (const std::optional<std::int64_t> begin = begin_of_range(tensor)) {
    return write(name, whole.subspan(static_cast<std::size_t>(*begin),
                                     static_cast<std::size_t>(tensor.shape.numel())));
  }
  std::vector<float> part;
  part.reserve(static_cast<std::size_t>(tensor.shape.numel()));
  for (const std::int64_t element : program::elements_of(tensor))
    part.push_back(whole[static_cast<std::size_t>(element)]);
  write<float>(name, part);
}

void TensorStore::read_bytes(const std::string& name, std::span<std::byte> bytes) const {
  const Entry& entry = at(name);
  if (bytes.size() != host_bytes(entry)) {
    throw std::logic_error(fmt::format("{} holds {} bytes, not {}", name, host_bytes(entry), bytes.size()));
  }
  backend_->synchronize();
  if (core::is_packed(entry.tensor.dtype)) {
    std::vector<std::byte> codes(entry.memory.bytes());
    backend_->copy_out(codes.data(), entry.memory.data(), codes.size());
    const core::PackedMatrix matrix = packed(entry.tensor, codes.data());
    return matrix.unpack(0, 0, matrix.count(), reinterpret_cast<float*>(bytes.data()));
  }
  if (is_narrow(entry.tensor)) {
    std::vector<std::uint16_t> stored(bytes.size() / sizeof(float));
    backend_->copy_out(stored.data(), entry.memory.data(), entry.memory.bytes());
    return core::load_elements(entry.tensor.dtype, stored.data(), 0, reinterpret_cast<float*>(bytes.data()),
                               static_cast<std::int64_t>(stored.size()));
  }
  if (!entry.tensor.halves) return backend_->copy_out(bytes.data(), entry.memory.data(), bytes.size());
  const auto* const from = static_cast<const std::byte*>(entry.memory.data());
  const std::size_t plane = bytes.size() / 2;
  std::vector<std::uint16_t> planes;
  for (std::size_t first = 0; first * sizeof(float) < bytes.size(); first += kPieceElements) {
    const std::size_t count = std::min(kPieceElements, bytes.size() / sizeof(float) - first);
    planes.resize(2 * count);
    const std::size_t at = first * sizeof(std::uint16_t);
    backend_->copy_out(planes.data(), from + at, count * sizeof(std::uint16_t));
    backend_->copy_out(planes.data() + count, from + plane + at, count * sizeof(std::uint16_t));
    join(planes, *entry.tensor.halves, bytes.subspan(first * sizeof(float), count * sizeof(float)));
  }
}

std::int64_t TensorStore::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, entry] : entries_) sum += static_cast<std::int64_t>(entry.memory.bytes());
  return sum;
}

}  // namespace rooflm::engines
