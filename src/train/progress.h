// Progress of a training run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "train/train_log.h"

namespace rooflm::train {

/// Writes to one stream, standard error by default. On a terminal one line is redrawn per step; elsewhere
/// every `line_every`-th step, the first and the last get a line each. Without a stream nothing is written.
class Progress {
 public:
  explicit Progress(std::int64_t steps, std::int64_t line_every = 10, std::FILE* stream = stderr);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  void step(const StepRecord& record);
  /// A line of its own; the bar is drawn again below it.
  void message(const std::string& text);
  /// Leaves the bar as it is and begins a line below it.
  void finish();

 private:
  void erase();
  /// Training continues if the reader of the stream is gone: failures are ignored.
  void write(const std::string& text);
  std::int64_t steps_;
  std::int64_t line_every_;
  std::FILE* stream_;
  bool is_terminal_;
  bool is_first_ = true;
  std::string bar_;
};

/// "step 120/1000  loss 3.217  lr 2.9e-04  norm 0.84  12.3 k tok/s  41.2 % MFU", parts that are absent left
/// out.
std::string describe(const StepRecord& record, std::int64_t steps);

}  // namespace rooflm::train
