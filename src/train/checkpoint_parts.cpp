// Checkpoints of parts: a file of each rank that wrote one.
#include "train/checkpoint_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "model/parameters.h"
#include "train/checkpoint.h"
#include "train/parts.h"

namespace rooflm::train {
namespace {

using core::InputError;

/// Runs of `count` elements, `times` of them, each `stride` after the one before.
struct Runs {
  std::int64_t begin = 0, count = 0, stride = 0, times = 1;
};

/// Columns of a matrix are one of them and not one for each row.
std::vector<Runs> grouped(const std::vector<Run>& runs) {
  std::vector<Runs> groups;
  for (const Run& run : runs) {
    if (!groups.empty() && groups.back().count == run.count) {
      Runs& last = groups.back();
      const std::int64_t stride = run.begin - (last.begin + (last.times - 1) * last.stride);
      if (last.times == 1 || stride == last.stride) {
        last.stride = stride;
        ++last.times;
        continue;
      }
    }
    groups.push_back({.begin = run.begin, .count = run.count});
  }
  return groups;
}

std::string text_of(const std::vector<Runs>& groups) {
  std::string text;
  for (const Runs& runs : groups) {
    text += fmt::format("{}{} {} {} {}", text.empty() ? "" : " ", runs.begin, runs.count, runs.stride,
                        runs.times);
  }
  return text;
}

/// Copies a file's elements of a tensor to where they belong; false when their places cannot be.
bool put(const std::string& places, std::span<const float> values, std::span<float> whole) {
  std::istringstream text(places);
  const auto size = static_cast<std::int64_t>(whole.size());
  auto left = static_cast<std::int64_t>(values.size());
  const float* from = values.data();
  for (Runs runs; text >> runs.begin;) {
    if (!(text >> runs.count >> runs.stride >> runs.times)) return false;
    if (runs.count < 1 || runs.count > left || runs.times < 1 || runs.times > left / runs.count) return false;
    if (runs.begin < 0 || runs.begin > size || runs.stride < 0 || runs.stride > size) return false;
    for (std::int64_t i = 0; i < runs.times; ++i) {
      const std::int64_t at = runs.begin + i * runs.stride;
      if (at > size - runs.count) return false;
      std::memcpy(whole.data() + at, from, static_cast<std::size_t>(runs.count) * sizeof(float));
      from += runs.count;
    }
    left -= runs.count * runs.times;
  }
  return left == 0 && text.eof();
}

std::vector<std::string> names_of(const Session& session) {
  std::vector<std::string> names;
  for (const model::Parameter& parameter : model::parameters(session.config()))
    names.push_back(parameter.name);
  for (const auto& state : session.optimizer_state()) names.push_back(state.name);
  return names;
}

}  // namespace

std::string part_name(int rank, int ranks) {
  return fmt::format("part-{:05}-of-{:05}.safetensors", rank + 1, ranks);
}

void write_part(const std::filesystem::path& path, const Session& session,
                const core::OnProgress& on_progress) {
  const engines::TensorStore& store = session.store();
  model::Metadata metadata{{"format", "pt"}};
  std::vector<model::TensorSource> tensors;
  for (const std::string& name : names_of(session)) {
    const std::vector<Run> runs = runs_of(store, session.step_options().rank, name);
    if (runs.empty()) continue;
    metadata[name] = text_of(grouped(runs));
    const std::int64_t elements = store.entries().at(name).tensor.shape.numel();
    const auto write = [&store, name](const core::ByteSink& sink) {
      const std::vector<float> values = store.read<float>(name);
      if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
        throw core::CheckFailed(fmt::format("{} holds numbers that are not finite", name));
      sink(std::as_bytes(std::span(values)));
    };
    tensors.push_back({.name = name, .dtype = core::DType::f32, .shape = {elements}, .write = write});
  }
  model::write_safetensors(path, tensors, metadata, on_progress);
}

PartFiles::PartFiles(const std::filesystem::path& checkpoint, int parts) : checkpoint_(checkpoint) {
  for (int part = 0; part < parts; ++part) {
    const std::filesystem::path path = checkpoint / part_name(part, parts);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      throw InputError(
          fmt::format("{} is missing: the checkpoint was written by {} ranks, and needs the parts of all",
                      path.string(), parts));
    }
    files_.emplace_back(path);
  }
}

void PartFiles::read(const std::string& name, std::span<float> whole) const {
  std::ranges::fill(whole, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> values;
  for (const model::SafetensorsFile& file : files_) {
    const model::StoredTensor* tensor = file.find(name);
    if (tensor == nullptr) continue;
    values.resize(static_cast<std::size_t>(tensor->shape.numel()));
    model::read_floats(*tensor, values);
    const auto places = file.metadata().find(name);
    if (places == file.metadata().end() || !put(places->second, values, whole)) {
      throw InputError(
          fmt::format("{}: tensor {}: the metadata do not say where its {} elements are among {}",
                      file.path().string(), name, values.size(), whole.size()));
    }
  }
  const auto bad = std::ranges::find_if_not(whole, [](float x) { return std::isfinite(x); });
  if (bad == whole.end()) return;
  throw InputError(fmt::format("{}: tensor {}: element {} is in none of the {} parts, or not finite",
                               checkpoint_.string(), name, bad - whole.begin(), files_.size()));
}

std::optional<PartFiles> open_parts(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory / "state.json", ignored)) return std::nullopt;
  const int parts = read_checkpoint_state(directory).parts;
  if (parts == 0) return std::nullopt;
  return PartFiles(directory, parts);
}

}  // namespace rooflm::train
