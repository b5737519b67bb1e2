// The log of a training run: one line of JSON per step.
#include "train/train_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace rooflm::train {
namespace {

using nlohmann::ordered_json;

/// Null for what is absent; JSON has no infinities either.
ordered_json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

/// The step of a line; nothing where it is no line of a log.
std::optional<std::int64_t> logged_step(std::string_view line) {
  nlohmann::json json;
  try {
    json = core::parse_json(line, "", "the log");
  } catch (const core::InputError&) {  // NOLINT(bugprone-empty-catch): as any other line that is none
  }
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return json["step"].get<std::int64_t>();
}

/// The step of a log line. Throws core::InputError when it has none.
std::int64_t step_of(std::string_view line, const std::filesystem::path& path, std::size_t number) {
  if (const auto step = logged_step(line)) return *step;
  throw core::InputError(
      fmt::format("{}: line {} is not a line of a training log, expected an object with an integer 'step'; "
                  "choose another --log",
                  path.string(), number));
}

/// The leading part of `text` whose lines are complete and not beyond `keep_until_step`.
std::string_view kept_part(std::string_view text, std::int64_t keep_until_step,
                           const std::filesystem::path& path) {
  std::size_t kept = 0;
  for (std::size_t line = 1;; ++line) {
    const std::size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;
    if (step_of(text.substr(kept, end - kept), path, line) > keep_until_step) break;
    kept = end + 1;
  }
  return text.substr(0, kept);
}

/// Of the last line that is complete; 0 without one.
std::int64_t last_step(std::string_view text) {
  const std::size_t end = text.rfind('\n');
  if (end == std::string_view::npos) return 0;
  text = text.substr(0, end);
  return logged_step(text.substr(text.rfind('\n') + 1)).value_or(0);
}

}  // namespace

TrainLog::TrainLog(const std::filesystem::path& path)
    : path_(path),
      // A pipe that nobody reads is an error, not waited for.
      file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644)) {
  struct stat info {};
  if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0 || ::fcntl(file_.get(), F_SETFL, O_APPEND) != 0)
    core::fail_on("write", path, errno);
  is_regular_ = S_ISREG(info.st_mode);
  if (is_regular_ && !core::lock(file_.get(), false))
    throw core::UsageError(
        fmt::format("another training run is writing to {}; choose another --log", path.string()));
}

std::int64_t TrainLog::keep_until(std::int64_t step) {
  if (!is_regular_) return step;
  const core::MappedFile file(path_);
  const std::size_t kept = kept_part(file.text(), step, path_).size();
  const std::int64_t last = std::max(step, last_step(file.text().substr(kept)));
  if (kept != file.text().size() && ::ftruncate(file_.get(), static_cast<off_t>(kept)) != 0)
    core::fail_on("write", path_, errno);
  return last;
}

void TrainLog::append(const StepRecord& r) {
  ordered_json line;
  line["step"] = r.step;
  line["loss"] = number(r.loss);
  line["lr"] = r.lr;
  line["grad_norm"] = number(r.grad_norm);
  line["tokens"] = r.tokens;
  line["tokens_per_s"] = r.tokens_per_s;
  line["mfu"] = number(r.mfu);
  line["peak_flop_per_s"] = number(r.peak_flop_per_s);
  line["loader_wait_s"] = r.loader_wait_s;
  line["step_s"] = r.times.step_s;
  line["val_loss"] = number(r.val_loss);
  if (r.loss_scale) {
    line["loss_scale"] = *r.loss_scale;
    line["skipped_steps"] = r.skipped_steps;
  }
  const std::string text = line.dump() + "\n";
  core::write_all(file_.get(), std::as_bytes(std::span(text)), path_);
}

}  // namespace rooflm::train
