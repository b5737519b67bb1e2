// The persistent tensors of a model: weights, optimizer state, inputs, results, shared by name between
// engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "program/program.h"

namespace rooflm::engines {

/// Owns one buffer per name on one backend, which must outlive it. Engines on the same store see the same
/// weights, so a training engine and an evaluation engine can alternate.
class TensorStore {
 public:
  explicit TensorStore(backends::Backend& backend) : backend_(&backend) {}

  struct Entry {
    program::Tensor tensor;
    backends::Allocation memory;
  };

  /// The entry of a persistent tensor, created and zeroed on first use. An fp32 entry becomes halved
  /// (Tensor::halves) when a program asks for that, and stays so. Throws std::logic_error if the name exists
  /// with another shape or dtype; inputs and results are recreated instead, since they differ between
  /// programs. `reach` applies to an entry that is created.
  Entry& bind(const program::Tensor& tensor, backends::Reach reach = backends::Reach::own);
  [[nodiscard]] bool contains(const std::string& name) const { return entries_.contains(name); }
  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }

  /// Copies between the host and the tensor; sizes must match exactly (std::logic_error). Waits for the
  /// device. The host sees halved tensors, and weights in 16 bits, as fp32; they are rounded to nearest even.
  template <class T>
  void write(const std::string& name, std::span<const T> values) {
    write_bytes(name, std::as_bytes(values));
  }
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name) const {
    const Entry& entry = at(name);
    std::vector<T> values(host_bytes(entry) / sizeof(T));
    read_bytes(name, std::as_writable_bytes(std::span(values)));
    return values;
  }
  /// Writes this rank's part of a tensor (Tensor::shards), given the whole one. Does nothing if the rank has
  /// no part of it.
  void write_part(const std::string& name, std::span<const float> whole);
  /// Makes the values of a whole tensor from element `first` on: as many as `out` holds.
  using ValueSource = std::function<void(std::int64_t first, std::span<float> out)>;
  /// The same, with values that are made piece by piece: of one range of elements, no others than this
  /// rank's.
  void write_from(const std::string& name, const ValueSource& source);
  void write_bytes(const std::string& name, std::span<const std::byte> bytes);
  /// Codes and scales of a packed weight (core/packed_weights.h) as they are. The functions above pack fp32.
  void write_packed(const std::string& name, std::span<const std::byte> codes);
  void read_bytes(const std::string& name, std::span<std::byte> bytes) const;

  /// Bytes of all entries.
  [[nodiscard]] std::int64_t bytes() const;
  [[nodiscard]] backends::Backend& backend() const { return *backend_; }

 private:
  [[nodiscard]] const Entry& at(const std::string& name) const;
  [[nodiscard]] static std::size_t host_bytes(const Entry& entry);
  /// fp32 values, as bytes, of elements from `first` on. `planes` is scratch.
  void write_range(const Entry& entry, std::size_t first, std::span<const std::byte> floats,
                   std::vector<std::uint16_t>& planes);
  backends::Backend* backend_;
  std::map<std::string, Entry> entries_;
};

}  // namespace rooflm::engines
