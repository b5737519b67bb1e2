// Tensors that live across steps, by name.
#include "engines/tensor_store.h"

#include <fmt/format.h>

#include <stdexcept>

namespace rooflm::engines {

TensorStore::Entry& TensorStore::bind(const program::Tensor& tensor) {
  const auto bytes = static_cast<std::size_t>(tensor.bytes());
  if (const auto found = entries_.find(tensor.name); found != entries_.end()) {
    Entry& entry = found->second;
    if (entry.tensor.shape != tensor.shape || entry.tensor.dtype != tensor.dtype) {
      throw std::logic_error(fmt::format("tensor {} is {} {} in the store, the program wants {} {}",
                                         tensor.name, core::name_of(entry.tensor.dtype),
                                         entry.tensor.shape.str(), core::name_of(tensor.dtype),
                                         tensor.shape.str()));
    }
    return entry;
  }
  Entry entry{tensor, backends::Allocation(*backend_, bytes)};
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
  backend_->copy_in(entry.memory.data(), bytes.data(), bytes.size());
}

void TensorStore::read_bytes(const std::string& name, std::span<std::byte> bytes) const {
  const Entry& entry = at(name);
  if (bytes.size() != entry.memory.bytes()) {
    throw std::logic_error(
        fmt::format("{} holds {} bytes, not {}", name, entry.memory.bytes(), bytes.size()));
  }
  backend_->synchronize();
  backend_->copy_out(bytes.data(), entry.memory.data(), bytes.size());
}

std::int64_t TensorStore::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, entry] : entries_) sum += static_cast<std::int64_t>(entry.memory.bytes());
  return sum;
}

}  // namespace rooflm::engines
