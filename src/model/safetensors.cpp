// Reads safetensors files. Every claim of a header is checked before it is used.
#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/elements.h"
#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "model/safetensors_floats.h"

namespace rooflm::model {
namespace {

using core::InputError;
using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

/// The header's JSON text. The length that precedes it must fit the file.
std::string_view header_of(const core::MappedFile& file) {
  const auto bytes = file.bytes();
  const std::string path = file.path().string();
  if (bytes.size() < kLengthBytes) {
    throw InputError(fmt::format(
        "{}: {} bytes are too short for a safetensors file, which starts with 8 bytes that say how "
        "long its header is",
        path, bytes.size()));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw InputError(fmt::format(
        "{}: the first 8 bytes say that the header has {} bytes, more than safetensors allows ({}); is this "
        "a safetensors file?",
        path, length, kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    throw InputError(fmt::format("{}: header says {} bytes, the file holds {} after its length", path, length,
                                 bytes.size() - kLengthBytes));
  }
  return file.text().substr(kLengthBytes, length);
}

/// One entry of the header, validated on its own.
class Entry {
 public:
  Entry(const std::filesystem::path& path, const std::string& name, const json& value)
      : path_(path), name_(name), value_(value) {
    if (!value.is_object()) fail("is not a JSON object; expected dtype, shape and data_offsets");
  }

  [[nodiscard]] std::string dtype() const {
    const json& dtype = member("dtype");
    if (!dtype.is_string()) fail("has a dtype that is no string");
    auto text = dtype.get<std::string>();
    if (stored_size(text) == 0) {
      fail(fmt::format("has the unknown dtype '{}'; expected {}", core::printable(text), stored_floats()));
    }
    return text;
  }

  [[nodiscard]] core::Shape shape() const {
    const auto extents = numbers("shape");
    if (extents.size() > core::Shape::kMostDims) {
      fail(fmt::format("has {} dimensions, expected at most {}", extents.size(), core::Shape::kMostDims));
    }
    std::vector<std::int64_t> dims;
    for (const std::uint64_t extent : extents) {
      if (extent > INT64_MAX) fail(fmt::format("has an extent of {}", extent));
      dims.push_back(static_cast<std::int64_t>(extent));
    }
    return core::Shape(dims);
  }

  /// [begin, end) within the data section of `data_bytes` bytes.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> range(std::uint64_t data_bytes) const {
    const auto offsets = numbers("data_offsets");
    if (offsets.size() != 2) fail(fmt::format("has {} data_offsets, expected 2", offsets.size()));
    if (offsets[0] > offsets[1])
      fail(fmt::format("ends at byte {} before it begins at {}", offsets[1], offsets[0]));
    if (offsets[1] > data_bytes) {
      fail(fmt::format("ends at byte {} of the data, the file holds {}; it may be truncated", offsets[1],
                       data_bytes));
    }
    return {offsets[0], offsets[1]};
  }

  /// Bytes that the shape needs; refuses overflow of 64 bits.
  [[nodiscard]] std::uint64_t bytes_of(const core::Shape& shape, std::string_view dtype) const {
    std::uint64_t bytes = stored_size(dtype);
    const bool is_empty = std::ranges::find(shape.dims(), 0) != shape.dims().end();
    if (is_empty) return 0;
    for (const std::int64_t extent : shape.dims()) {
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) {
        fail(fmt::format("has the impossible shape {}", shape.str()));
      }
    }
    return bytes;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: tensor {} {}", path_.string(), core::printable(name_), what));
  }

 private:
  [[nodiscard]] const json& member(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(fmt::format("has no {}", key));
    return *found;
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers(const char* key) const {
    const json& list = member(key);
    const auto is_count = [](const json& number) { return number.is_number_unsigned(); };
    if (!list.is_array() || !std::ranges::all_of(list, is_count)) {
      fail(fmt::format("has a {} that is not a list of non-negative integers", key));
    }
    return list.get<std::vector<std::uint64_t>>();
  }

  const std::filesystem::path& path_;
  const std::string& name_;
  const json& value_;
};

/// The tensors must fill the data section without gap or overlap.
void check_layout(const std::filesystem::path& path, const std::vector<StoredTensor>& tensors,
                  std::span<const std::byte> data) {
  const std::byte* expected = data.data();
  for (const StoredTensor& tensor : tensors) {
    if (tensor.bytes.data() != expected) {
      throw InputError(fmt::format("{}: tensor {} begins at byte {} of the data, expected {}: {}",
                                   path.string(), core::printable(tensor.name),
                                   tensor.bytes.data() - data.data(), expected - data.data(),
                                   tensor.bytes.data() < expected ? "tensors overlap" : "there is a gap"));
    }
    expected += tensor.bytes.size();
  }
  if (expected != data.data() + data.size()) {
    throw InputError(fmt::format("{}: the tensors end at byte {} of the data, the file holds {}",
                                 path.string(), expected - data.data(), data.size()));
  }
}

Metadata parse_metadata(const std::filesystem::path& path, const json& value) {
  const auto is_string = [](const json& text) { return text.is_string(); };
  if (!value.is_object() || !std::ranges::all_of(value, is_string)) {
    throw InputError(fmt::format("{}: __metadata__ is not a JSON object of strings", path.string()));
  }
  return value.get<Metadata>();
}

template <class Stored, class Out>
void convert(std::span<const std::byte> bytes, std::span<Out> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    if constexpr (std::is_arithmetic_v<Stored>) {
      out[i] = static_cast<Out>(stored);
    } else {
      out[i] = static_cast<Out>(static_cast<float>(stored));
    }
  }
}

template <class Out>
void read_numbers(const StoredTensor& tensor, std::span<Out> out) {
  if (out.size() != static_cast<std::size_t>(tensor.shape.numel())) {
    throw std::logic_error(
        fmt::format("tensor {} {} read into {} elements", tensor.name, tensor.shape.str(), out.size()));
  }
  if (!is_float(tensor)) {
    throw InputError(fmt::format("{}: tensor {} has the dtype {}, expected {}", tensor.file.string(),
                                 tensor.name, tensor.dtype, stored_floats()));
  }
  core::with_float_type(*core::find_dtype(&core::DTypeFacts::stored_name, tensor.dtype),
                        [&]<class Stored>(Stored) { convert<Stored>(tensor.bytes, out); });
}

}  // namespace

bool is_float(const StoredTensor& tensor) {
  const auto dtype = core::find_dtype(&core::DTypeFacts::stored_name, tensor.dtype);
  return dtype && core::facts_of(*dtype).is_float && !core::is_fp8(*dtype);
}
void read_floats(const StoredTensor& tensor, std::span<float> out) { read_numbers(tensor, out); }
void read_doubles(const StoredTensor& tensor, std::span<double> out) { read_numbers(tensor, out); }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string_view header = header_of(file_);
  const auto data = file_.bytes().subspan(kLengthBytes + header.size());
  const json root = core::parse_json_object(header, path.string(), "the header");
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      metadata_ = parse_metadata(path, value);
      continue;
    }
    const Entry entry(path, name, value);
    const auto [begin, end] = entry.range(data.size());
    StoredTensor tensor{path, name, entry.dtype(), entry.shape(), data.subspan(begin, end - begin)};
    const std::uint64_t needed = entry.bytes_of(tensor.shape, tensor.dtype);
    if (needed != end - begin) {
      entry.fail(fmt::format("{} {} needs {} bytes, the file gives it {}", tensor.dtype, tensor.shape.str(),
                             needed, end - begin));
    }
    tensors_.push_back(std::move(tensor));
  }
  // An empty tensor shares its offset with its neighbour and must come first.
  std::ranges::stable_sort(tensors_, {}, [](const StoredTensor& tensor) {
    return std::pair(tensor.bytes.data(), tensor.bytes.size());
  });
  check_layout(path, tensors_, data);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  throw InputError(fmt::format("{}: there is no tensor {}", path().string(), core::printable(name)));
}

}  // namespace rooflm::model
