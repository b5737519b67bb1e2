// What other programs take of the processors is told from what this one takes.
#include "measure/machine_load.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "measure/sampling.h"

namespace rooflm::measure {
namespace {

void compute(double seconds) {
  const double begin = now_s();
  while (now_s() - begin < seconds) {
  }
}

TEST(MachineLoad, TooShortToTell) {
  const MachineLoad load;
  EXPECT_FALSE(load.others_share());
}

TEST(MachineLoad, AChildProcessIsAnotherProgram) {
  constexpr double kSeconds = 0.8;
  const MachineLoad load;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    compute(10 * kSeconds);
    _exit(0);
  }
  compute(kSeconds);
  const auto share = load.others_share();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (!share) GTEST_SKIP() << "/proc/stat does not say";
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  // The child had a processor, or shared one with this process; others may have had some, too.
  EXPECT_GT(*share, 0.3 / CPU_COUNT(&allowed));
  EXPECT_LE(*share, 1.0);
}

TEST(MachineLoad, TheSentenceHasPercent) {
  EXPECT_EQ(load_sentence(0.1234), "other programs used 12.3 % of the processors");
}

}  // namespace
}  // namespace rooflm::measure
