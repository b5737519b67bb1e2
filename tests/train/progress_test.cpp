// What a training run shows where there is no terminal.
#include "train/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace rooflm::train {
namespace {

std::string everything(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(Progress, PlainLinesNowAndThen) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  {
    Progress progress(25, 10, file.get());
    for (int step = 1; step <= 25; ++step) progress.step({.step = step, .loss = 3, .tokens_per_s = 12345});
    progress.message("saved");
  }
  const std::string text = everything(file.get());
  for (const char* line :
       {"step 1/25  loss 3.0000", "step 10/25", "step 20/25", "step 25/25", "12.3 k tok/s"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, LeavesOutWhatIsAbsent) {
  const StepRecord bare{.step = 7, .loss = 1.5, .lr = 1e-3};
  EXPECT_EQ(describe(bare, 9), "step 7/9  loss 1.5000  lr 1.00e-03  0 tok/s");
  StepRecord full = bare;
  full.grad_norm = 0.25;
  full.mfu = 0.412;
  EXPECT_EQ(describe(full, 9), "step 7/9  loss 1.5000  lr 1.00e-03  norm 0.25  0 tok/s  41.2 % MFU");
}

TEST(Progress, SurvivesAReaderThatIsGone) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"), std::fclose);
  if (!full) GTEST_SKIP() << "there is no /dev/full";
  Progress progress(2, 1, full.get());
  EXPECT_NO_THROW(progress.step({.step = 1}));
  EXPECT_NO_THROW(progress.message("text"));
}

}  // namespace
}  // namespace rooflm::train
