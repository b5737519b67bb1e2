// Checkpoints: directories that appear whole or not at all, and open in Hugging Face transformers.
#include "train/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "model/huggingface.h"
#include "model/safetensors.h"
#include "train/adapter_files.h"
#include "train/checkpoint_parts.h"
#include "train/checkpoint_state.h"
#include "train/checksum.h"
#include "train/parts.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;
using core::InputError;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr const char* kUnfinished = ".tmp";
constexpr const char* kLock = ".lock";
constexpr const char* kOptimizer = "optimizer.safetensors";

/// The step in the name of a complete checkpoint.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  const bool is_number = digits.size() >= 6 && digits.size() <= 18 &&
                         digits.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional(std::stoll(digits)) : std::nullopt;
}

fs::path checkpoint_of(const fs::path& out, std::int64_t step) {
  return out / fmt::format("{}{:06}", kPrefix, step);
}

fs::path unfinished_of(fs::path checkpoint) {
  checkpoint += kUnfinished;
  return checkpoint;
}

/// Whether this is something that a run writes and renames: checkpoint-000123.tmp/, the link latest.tmp, a
/// log that is cut. Nothing else is ours, whatever it ends in.
bool is_unfinished(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const std::string_view ending = kUnfinished;
  std::error_code ignored;
  if (name == core::temporary_name("log.jsonl")) return !entry.is_directory(ignored);
  if (!name.ends_with(ending)) return false;
  const std::string stem = name.substr(0, name.size() - ending.size());
  if (entry.is_symlink(ignored)) return stem == "latest";
  return entry.is_directory(ignored) && step_of(stem).has_value();
}

[[noreturn]] void fail(const char* doing, const fs::path& path, const std::string& why) {
  throw InputError(fmt::format("cannot {} {}: {}", doing, path.string(), why));
}

/// Removes a directory in such a way that what is left after a crash does not look complete.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path removed = unfinished_of(checkpoint);
  std::error_code ignored;  // a checkpoint too many does no harm
  fs::remove_all(removed, ignored);
  fs::rename(checkpoint, removed, ignored);
  fs::remove_all(removed, ignored);
}

void point_latest_to(const fs::path& out, const fs::path& checkpoint) {
  const fs::path link = out / "latest";
  const fs::path temporary = out / (std::string("latest") + kUnfinished);
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_directory_symlink(checkpoint.filename(), temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) {
    const std::string why = error.message();
    fs::remove(temporary, error);
    fail("write", link, why);
  }
  core::sync_directory(out);
}

void require_finite(const std::string& name, std::span<const float> values) {
  if (std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) return;
  throw core::CheckFailed(fmt::format("{} holds numbers that are not finite", name));
}

void write_optimizer(const fs::path& path, const Session& session, const core::OnProgress& on_progress) {
  std::vector<model::TensorSource> tensors;
  for (const auto& [name, shape, dtype] : session.optimizer_state()) {
    tensors.push_back(
        {.name = name,
         .dtype = dtype,
         .shape = shape,
         .write = [&session, name = name, dtype = dtype,
                   count = static_cast<std::size_t>(shape.numel())](const core::ByteSink& sink) {
           if (dtype != core::DType::f32) {
             std::vector<std::byte> bytes(count * core::size_of(dtype));
             session.store().read_bytes(name, bytes);
             return sink(bytes);
           }
           std::vector<float> values(count);
           session.read_whole(name, values);
           require_finite(name, values);
           sink(std::as_bytes(std::span(values)));
         }});
  }
  model::write_safetensors(path, tensors, {{"format", "pt"}}, on_progress);
}

void read_optimizer(const PartFiles& parts, Session& session) {
  std::vector<float> values;
  for (const auto& [name, shape, dtype] : session.optimizer_state()) {
    values.resize(static_cast<std::size_t>(shape.numel()));
    parts.read(name, values);
    session.write_whole(name, values);
  }
}

void read_optimizer(const fs::path& path, Session& session) {
  const model::SafetensorsFile file(path);
  const auto state = session.optimizer_state();
  if (file.tensors().size() != state.size()) {
    throw InputError(fmt::format("{}: holds {} tensors, expected {} of this model's optimizer", path.string(),
                                 file.tensors().size(), state.size()));
  }
  for (const auto& [name, shape, dtype] : state) {  // everything is checked before anything is changed
    const model::StoredTensor& tensor = file.at(name);
    const std::string_view stored = core::facts_of(dtype).stored_name;
    if (tensor.dtype != stored || tensor.shape != shape) {
      throw InputError(fmt::format("{}: tensor {} is {} {}, expected {} {}", path.string(), name,
                                   tensor.dtype, tensor.shape.str(), stored, shape.str()));
    }
  }
  std::vector<float> values;
  for (const auto& [name, shape, dtype] : state) {
    const model::StoredTensor& tensor = file.at(name);
    if (dtype != core::DType::f32) {
      session.store().write_bytes(name, tensor.bytes);
      continue;
    }
    values.resize(static_cast<std::size_t>(tensor.shape.numel()));
    model::read_floats(tensor, values);
    const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (bad != values.end()) {
      throw InputError(fmt::format("{}: tensor {} holds {} at element {}, expected finite numbers",
                                   path.string(), name, *bad, bad - values.begin()));
    }
    session.write_whole(name, values);
  }
}

std::uint64_t sum_of_file(const fs::path& path, const core::OnProgress& on_progress) {
  return checksum(core::MappedFile(path).bytes(), on_progress);
}

/// Throws when a file is not what was saved.
void verify(const fs::path& checkpoint) {
  const CheckpointState state = read_checkpoint_state(checkpoint);
  if (state.parts > 0) static_cast<void>(open_parts(checkpoint));  // says what a part that is missing means
  for (const auto& [name, saved] : state.checksums) verify_file(checkpoint / name, saved);
}

void write_whole(const fs::path& directory, const Session& session, const model::TextEnds& ends,
                 const fs::path& base, const core::OnProgress& on_progress) {
  const auto read = [&](const std::string& name, std::span<float> values) {
    session.read_whole(name, values);
    require_finite(name, values);
  };
  if (const auto& adapters = session.step_options().adapters; adapters.empty()) {
    model::save_model(directory, session.config(), read, core::DType::f32, model::kMaxShardBytes, on_progress,
                      ends);
  } else {  // the base lies where it was
    save_adapters(directory, adapters, base, read);
    model::save_config(directory, session.config(), core::DType::f32, ends);
  }
  write_optimizer(directory / kOptimizer, session, on_progress);
}

/// This rank's part of a checkpoint; its checksum.
std::uint64_t write_own_part(const fs::path& directory, const Session& session) {
  ranks::Transport& ranks = *session.transport();
  const core::OnProgress on_progress = session.keep_waiting();
  ranks.set_op("writing its part of a checkpoint");
  const fs::path path = directory / part_name(ranks.rank(), ranks.size());
  write_part(path, session, on_progress);
  return sum_of_file(path, on_progress);
}

/// On the first rank.
void write_parts(const fs::path& directory, CheckpointState& state, const Session& session,
                 const model::TextEnds& ends) {
  ranks::Transport& ranks = *session.transport();
  release(ranks);
  const std::uint64_t own = write_own_part(directory, session);
  ranks.set_op("waiting for the parts of a checkpoint");
  const std::vector<std::uint64_t> sums = collect(ranks, own);
  for (std::size_t i = 0; i < sums.size(); ++i)
    state.checksums[part_name(static_cast<int>(i), state.parts)] = text_of_sum(sums[i]);
  model::save_config(directory, session.config(), core::DType::f32, ends);
}

void write_files(const fs::path& directory, CheckpointState state, const Session& session,
                 const CheckpointTokenizer& tokenizer) {
  const core::OnProgress on_progress = session.keep_waiting();
  state.checksums.clear();
  if (state.parts > 0) {
    write_parts(directory, state, session, tokenizer.ends);
  } else {
    write_whole(directory, session, tokenizer.ends, state.base, on_progress);
  }
  if (!tokenizer.text.empty()) core::write_file_atomically(directory / "tokenizer.json", tokenizer.text);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::string& checksum = state.checksums[entry.path().filename().string()];
    if (checksum.empty()) checksum = text_of_sum(sum_of_file(entry.path(), on_progress));
  }
  core::write_file_atomically(directory / "state.json", state_json(state));
  core::sync_directory(directory);
}

}  // namespace

std::vector<fs::path> list_checkpoints(const fs::path& out) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = step_of(entry->path().filename().string());
    std::error_code ignored;
    if (step && entry->is_directory(ignored)) found.emplace_back(*step, entry->path());
  }
  std::ranges::sort(found);
  std::vector<fs::path> checkpoints;
  for (auto& [step, path] : found) checkpoints.push_back(std::move(path));
  return checkpoints;
}

model::TextEnds text_ends(const text::Tokenizer& tokenizer) {
  const auto begin = tokenizer.special_id("<|begin_of_text|>");
  return {.begin = begin ? begin : tokenizer.eot(), .end = tokenizer.eot()};
}

fs::path save_checkpoint(const fs::path& out, const CheckpointState& state, const Session& session,
                         const CheckpointTokenizer& tokenizer, std::int64_t keep) {
  fs::path checkpoint = checkpoint_of(out, state.step);
  const fs::path unfinished = unfinished_of(checkpoint);
  std::error_code error;
  fs::remove_all(unfinished, error);
  fs::create_directory(unfinished, error);
  if (error) fail("make", unfinished, error.message());
  try {
    write_files(unfinished, state, session, tokenizer);
    fs::rename(unfinished, checkpoint, error);
    if (error) fail("write", checkpoint, error.message());
  } catch (...) {
    fs::remove_all(unfinished, error);
    throw;
  }
  core::sync_directory(out);
  settle_checkpoints(out, keep);
  if (state.parts > 0) release(*session.transport());
  return checkpoint;
}

void save_part(const fs::path& out, const CheckpointState& state, const Session& session) {
  ranks::Transport& ranks = *session.transport();
  ranks.set_op("waiting for the directory of a checkpoint");
  wait_for_release(ranks);
  static_cast<void>(collect(ranks, write_own_part(unfinished_of(checkpoint_of(out, state.step)), session)));
  ranks.set_op("waiting for the checkpoint");
  wait_for_release(ranks);
}

std::string problem_of_latest(const fs::path& out) {
  const fs::path link = out / "latest";
  std::error_code error;
  const fs::file_status status = fs::symlink_status(link, error);
  if (!fs::exists(status)) return "";
  if (!fs::is_symlink(status))
    return fmt::format("{} is not a link to a checkpoint: it is damaged, and is made again", link.string());
  if (fs::is_directory(link, error)) return "";
  return fmt::format("{} points to {}, which is missing: that checkpoint is lost", link.string(),
                     fs::read_symlink(link, error).string());
}

void settle_checkpoints(const fs::path& out, std::int64_t keep) {
  const auto all = list_checkpoints(out);
  if (all.empty()) return;
  std::error_code error;
  if (fs::read_symlink(out / "latest", error) != all.back().filename()) point_latest_to(out, all.back());
  const auto kept = std::min(all.size(), static_cast<std::size_t>(keep));
  for (std::size_t i = 0; i + kept < all.size(); ++i) remove_checkpoint(all[i]);
}

void verify_model(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory / "state.json", ignored)) return;
  for (const auto& [name, saved] : read_checkpoint_state(directory).checksums) {
    if (name != kOptimizer && fs::exists(directory / name, ignored)) verify_file(directory / name, saved);
  }
}

void verify_weights(const fs::path& directory, const model::ModelConfig& config) {
  verify_model(directory);
  if (!open_parts(directory)) check_merged(directory, config);
}

void load_checkpoint(const fs::path& checkpoint, Session& session) {
  verify(checkpoint);
  if (const auto parts = open_parts(checkpoint)) {
    read_optimizer(*parts, session);
  } else {
    read_optimizer(checkpoint / kOptimizer, session);
  }
  session.load(checkpoint);
}

fs::path resolve_model_directory(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(path / "config.json", error)) return path;
  const auto checkpoints = list_checkpoints(path);
  return checkpoints.empty() ? path : checkpoints.back();
}

OutputDirectory::OutputDirectory(const fs::path& path) : path_(path) {
  std::error_code error;
  is_made_ = fs::create_directories(path, error);
  if (error) fail("make", path, error.message());
  const fs::path lock = path / kLock;
  do {
    lock_ = core::Descriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
    if (lock_.get() < 0) fail("write", lock, std::strerror(errno));
    if (!core::lock(lock_.get(), false)) {
      throw core::UsageError(
          fmt::format("another training run is writing to {}; choose another --out", path.string()));
    }
  } while (!core::is_still_at(lock_.get(), lock));
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (is_unfinished(*entry)) unfinished.push_back(entry->path());
  }
  for (const fs::path& each : unfinished) fs::remove_all(each, error);
}

OutputDirectory::~OutputDirectory() {
  if (!is_made_) return;
  std::error_code ignored;
  const auto entries = std::distance(fs::directory_iterator(path_, ignored), fs::directory_iterator());
  if (ignored || entries != 1) return;
  fs::remove(path_ / kLock, ignored);
  ::rmdir(path_.c_str());
}

}  // namespace rooflm::train
