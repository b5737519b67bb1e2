// Progress of a training run: a bar on a terminal, plain lines elsewhere.
#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/printable.h"
#include "core/system/terminal.h"
#include "core/text_fit.h"
#include "core/units.h"

namespace rooflm::train {
namespace {

constexpr std::size_t kBarWidth = 20;

/// "[#####...............]"
std::string bar(std::int64_t done, std::int64_t all) {
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(all), 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(share * kBarWidth);
  return fmt::format("[{:#>{}}{:.>{}}]", "", filled, "", kBarWidth - filled);
}

}  // namespace

std::string describe(const StepRecord& r, std::int64_t steps) {
  std::string text = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}", r.step, steps, r.loss, r.lr);
  if (r.grad_norm) text += fmt::format("  norm {:.3g}", *r.grad_norm);
  if (r.is_skipped) text += fmt::format("  skipped, scale {:g}", r.loss_scale.value_or(0));
  text += fmt::format("  {} tok/s", core::format_si(r.tokens_per_s));
  if (r.mfu) text += fmt::format("  {:.1f} % MFU", 100 * *r.mfu);
  return text;
}

Progress::Progress(std::int64_t steps, std::int64_t line_every, std::FILE* stream)
    : steps_(steps),
      line_every_(std::max<std::int64_t>(1, line_every)),
      stream_(stream),
      is_terminal_(stream != nullptr && ::isatty(::fileno(stream)) != 0) {}

void Progress::finish() {
  if (!bar_.empty()) write("\n");
  bar_.clear();
}

void Progress::step(const StepRecord& r) {
  if (!is_terminal_) {
    if (is_first_ || r.step % line_every_ == 0 || r.step == steps_) {
      write(describe(r, steps_) + "\n");
    }
    is_first_ = false;
    return;
  }
  const double left_s = static_cast<double>(steps_ - r.step) * (r.times.step_s + r.loader_wait_s);
  std::string line =
      fmt::format("{} {}  {} left", bar(r.step, steps_), describe(r, steps_), core::format_clock(left_s));
  constexpr std::size_t kUsualWidth = 80;
  const std::size_t known = core::terminal_width(stream_);
  const std::size_t width = known > 0 ? known : kUsualWidth;
  if (line.size() >= width) line.resize(width - 1);
  erase();
  bar_ = line;
  write(bar_);
}

void Progress::message(const std::string& text) {
  if (stream_ == nullptr) return;
  erase();
  write(core::wrap_lines(core::printable_lines(text), core::terminal_width(stream_)) + "\n" + bar_);
}

void Progress::erase() {
  if (!bar_.empty()) write("\r\x1b[K");
}

void Progress::write(const std::string& text) {
  if (stream_ == nullptr) return;
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

}  // namespace rooflm::train
