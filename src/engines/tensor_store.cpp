// Persistent tensors by name.
#include "engines/tensor_store.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "core/halves.h"
#include "program/groups.h"

namespace rooflm::engines {
namespace {

/// Splits fp32 numbers into one plane of upper halves followed by one of lower halves.
std::vector<std::uint16_t> split(std::span<const std::byte> floats) {
  const std::size_t n = floats.size() / sizeof(float);
  std::vector<std::uint16_t> planes(2 * n);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < n; ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + i * sizeof value, sizeof value);
    const core::Halves halves(value);
    planes[i] = halves.upper;
    planes[n + i] = halves.lower;
  }
  return planes;
}

/// The inverse of split.
void join(const std::vector<std::uint16_t>& planes, std::span<std::byte> floats) {
  const std::size_t n = planes.size() / 2;
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < n; ++i) {
    core::Halves halves;
    halves.upper = planes[i];
    halves.lower = planes[n + i];
    const auto value = static_cast<float>(halves);
    std::memcpy(floats.data() + i * sizeof value, &value, sizeof value);
  }
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
    if (tensor.halved && !entry.tensor.halved) {
      const std::vector<float> values = read<float>(tensor.name);
      entry.tensor.halved = true;
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

void TensorStore::write_bytes(const std::string& name, std::span<const std::byte> bytes) {
  const Entry& entry = at(name);
  if (bytes.size() != entry.memory.bytes()) {
    throw std::logic_error(
        fmt::format("{} holds {} bytes, not {}", name, entry.memory.bytes(), bytes.size()));
  }
  if (!entry.tensor.halved) return backend_->copy_in(entry.memory.data(), bytes.data(), bytes.size());
  const std::vector<std::uint16_t> planes = split(bytes);
  backend_->copy_in(entry.memory.data(), planes.data(), bytes.size());
}

void TensorStore::write_part(const std::string& name, std::span<const float> whole) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  const program::Tensor& tensor = found->second.tensor;
  if (tensor.shards.empty()) return write(name, whole);
  const program::Shard& shard = tensor.shards.front();
  if (tensor.shards.size() == 1 && shard.axis == program::Shard::kElements) {  // a single range
    const program::Part own =
        program::part_of(shard.whole.numel(), shard.parts, shard.index, program::kPartUnit);
    return write(name,
                 whole.subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.size())));
  }
  std::vector<float> part;
  part.reserve(static_cast<std::size_t>(tensor.shape.numel()));
  for (const std::int64_t element : program::elements_of(tensor))
    part.push_back(whole[static_cast<std::size_t>(element)]);
  write<float>(name, part);
}

void TensorStore::read_bytes(const std::string& name, std::span<std::byte> bytes) const {
  const Entry& entry = at(name);
  if (bytes.size() != entry.memory.bytes()) {
    throw std::logic_error(
        fmt::format("{} holds {} bytes, not {}", name, entry.memory.bytes(), bytes.size()));
  }
  backend_->synchronize();
  if (!entry.tensor.halved) return backend_->copy_out(bytes.data(), entry.memory.data(), bytes.size());
  std::vector<std::uint16_t> planes(bytes.size() / sizeof(std::uint16_t));
  backend_->copy_out(planes.data(), entry.memory.data(), bytes.size());
  join(planes, bytes);
}

std::int64_t TensorStore::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, entry] : entries_) sum += static_cast<std::int64_t>(entry.memory.bytes());
  return sum;
}

}  // namespace rooflm::engines
