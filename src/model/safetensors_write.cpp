// Streams safetensors files, in shards if a single file would be too large.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/elements.h"
#include "core/error.h"
#include "model/safetensors.h"
#include "model/safetensors_floats.h"

namespace rooflm::model {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kAlignment = 8;
constexpr std::size_t kChunk = 4096;  // elements converted at a time

std::uint64_t bytes_of(const TensorSource& tensor) {
  const std::size_t size = tensor.stored.empty() ? core::size_of(tensor.dtype) : stored_size(tensor.stored);
  return static_cast<std::uint64_t>(tensor.shape.numel()) * size;
}

/// The length and the JSON, padded with spaces so that the data begins at a multiple of 8.
std::string header_of(const std::vector<TensorSource>& tensors, const Metadata& metadata) {
  ordered_json root;
  if (!metadata.empty()) root["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const TensorSource& tensor : tensors) {
    if (root.contains(tensor.name)) throw std::logic_error("tensor " + tensor.name + " is written twice");
    const std::uint64_t end = offset + bytes_of(tensor);
    root[tensor.name] = {
        {"dtype", tensor.stored.empty() ? core::facts_of(tensor.dtype).stored_name : tensor.stored},
        {"shape", std::vector(tensor.shape.dims().begin(), tensor.shape.dims().end())},
        {"data_offsets", std::array{offset, end}}};
    offset = end;
  }
  std::string text = root.is_null() ? "{}" : root.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string header(sizeof(std::uint64_t), '\0');
  const std::uint64_t length = text.size();
  std::memcpy(header.data(), &length, sizeof(length));
  return header + text;
}

/// Converts in chunks that stay in cache.
template <class Stored>
void send_as(const core::ByteSink& sink, std::span<const float> values) {
  std::array<Stored, kChunk> chunk;
  while (!values.empty()) {
    const std::size_t n = std::min(values.size(), kChunk);
    for (std::size_t i = 0; i < n; ++i) chunk[i] = Stored(values[i]);
    sink(std::as_bytes(std::span(chunk).first(n)));
    values = values.subspan(n);
  }
}

/// Consecutive tensors per shard; only a single tensor may exceed the limit.
std::vector<std::vector<TensorSource>> split(const std::vector<TensorSource>& tensors,
                                             std::uint64_t max_shard_bytes) {
  std::vector<std::vector<TensorSource>> shards(1);
  std::uint64_t used = 0;
  for (const TensorSource& tensor : tensors) {
    const std::uint64_t bytes = bytes_of(tensor);
    if (used > 0 && used + bytes > max_shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(tensor);
    used += bytes;
  }
  return shards;
}

}  // namespace

void write_floats(const core::ByteSink& sink, std::span<const float> values, core::DType dtype) {
  if (dtype == core::DType::f32) return sink(std::as_bytes(values));
  core::with_float_type(dtype, [&]<class Stored>(Stored) { send_as<Stored>(sink, values); });
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSource>& tensors,
                       const Metadata& metadata, const core::OnProgress& on_progress) {
  const std::string header = header_of(tensors, metadata);
  const auto fill = [&](const core::ByteSink& sink) {
    sink(std::as_bytes(std::span(header)));
    for (const TensorSource& tensor : tensors) {
      std::uint64_t sent = 0;
      tensor.write([&](std::span<const std::byte> bytes) {
        sent += bytes.size();
        sink(bytes);
      });
      if (sent != bytes_of(tensor)) {
        throw std::logic_error(
            fmt::format("tensor {} {} sent {} bytes", tensor.name, tensor.shape.str(), sent));
      }
    }
  };
  core::write_file_atomically(path, fill, on_progress);
}

void write_safetensors_directory(const std::filesystem::path& directory,
                                 const std::vector<TensorSource>& tensors, std::uint64_t max_shard_bytes,
                                 const core::OnProgress& on_progress) {
  static const Metadata kPlain = {{"format", "pt"}};
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw core::InputError(fmt::format("cannot create {}: {}", directory.string(), error.message()));
  }
  const auto single = directory / "model.safetensors";
  const auto shards = split(tensors, max_shard_bytes);
  if (shards.size() == 1) return write_safetensors(single, tensors, kPlain, on_progress);

  ordered_json index;
  std::uint64_t total = 0;
  for (const TensorSource& tensor : tensors) total += bytes_of(tensor);
  index["metadata"]["total_size"] = total;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(directory / name, shards[i], kPlain, on_progress);
    for (const TensorSource& tensor : shards[i]) index["weight_map"][tensor.name] = name;
  }
  core::write_file_atomically(directory / "model.safetensors.index.json", index.dump(2) + "\n");
  std::filesystem::remove(single, error);  // readers would prefer it; it may be absent
}

}  // namespace rooflm::model
