// Reads and writes safetensors files: named tensors after a JSON header.
//
// Layout: 8 bytes little-endian length n of the header, n bytes of JSON, then the tensors without gaps.
// Public description: https://huggingface.co/docs/safetensors. Little-endian machines only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/shape.h"

namespace rooflm::model {

/// String metadata of a file's header.
using Metadata = std::map<std::string, std::string>;

/// One tensor of an open file. `bytes` borrows from the file's map and may be unaligned.
struct StoredTensor {
  std::filesystem::path file;
  std::string name;
  std::string dtype;  ///< as in the file: "F32", "BF16", "F16", "F64", "I64", ...
  core::Shape shape;  ///< row-major; a scalar has no dimensions, an extent may be 0
  std::span<const std::byte> bytes;
};

/// Whether read_floats can read it: F32, BF16, F16 or F64.
bool is_float(const StoredTensor& tensor);
/// Converts a tensor to fp32 (`out` has numel elements; fp64 rounds to nearest, bf16 and fp16 are exact).
/// Throws core::InputError, naming file and tensor, unless is_float(tensor).
void read_floats(const StoredTensor& tensor, std::span<float> out);
/// The same in fp64: exact for all four dtypes.
void read_doubles(const StoredTensor& tensor, std::span<double> out);

/// A safetensors file, mapped read-only. Move-only.
class SafetensorsFile {
 public:
  /// Opens the file and checks the whole header: its length, the JSON, duplicate names, known dtypes, shapes,
  /// and that the tensors fill the file without gap or overlap. Throws core::InputError that names the file,
  /// the tensor and the expectation.
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// In the order of their data.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// nullptr when absent.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;
  /// Throws core::InputError when absent.
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  core::MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
  Metadata metadata_;
};

/// The tensors of a Hugging Face directory: model.safetensors, or else the shards named by
/// model.safetensors.index.json. The shards must contain exactly the tensors that the index places in them;
/// throws core::InputError otherwise.
std::vector<SafetensorsFile> open_safetensors_directory(const std::filesystem::path& directory);

/// A tensor to write: `write` sends exactly numel * size_of(dtype) bytes in any number of pieces.
struct TensorSource {
  std::string name;
  core::DType dtype = core::DType::f32;
  core::Shape shape;
  std::function<void(const core::ByteSink&)> write;
  std::string
      stored{};  ///< the file's name of its elements, where they are no floats of `dtype`: "U8", "I64"
};

/// Sends `values` to `sink` as `dtype` (f32, bf16, f16 or f64), rounding to nearest even.
void write_floats(const core::ByteSink& sink, std::span<const float> values, core::DType dtype);

/// Writes one file atomically, tensors in the given order, each source called once. If the file cannot be
/// written, throws core::InputError and leaves the old one. `on_progress`: as in core::write_file_atomically.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSource>& tensors,
                       const Metadata& metadata = {{"format", "pt"}},
                       const core::OnProgress& on_progress = {});

/// Largest file that save functions write by default, as in Hugging Face transformers.
inline constexpr std::uint64_t kMaxShardBytes = 5'000'000'000;

/// Writes model.safetensors, or model-0000i-of-0000n.safetensors and model.safetensors.index.json when the
/// tensors exceed `max_shard_bytes` (a single larger tensor gets a shard of its own). Each file appears
/// atomically, the index last; a model.safetensors that the shards replace is then removed. Throws
/// core::InputError.
void write_safetensors_directory(const std::filesystem::path& directory,
                                 const std::vector<TensorSource>& tensors,
                                 std::uint64_t max_shard_bytes = kMaxShardBytes,
                                 const core::OnProgress& on_progress = {});

}  // namespace rooflm::model
