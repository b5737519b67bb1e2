// Teams of OpenMP threads that are as large as asked for.
#include "backends/thread_team.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "core/error.h"

namespace rooflm::tests {
namespace {

int size_of_team(int threads) {
  int size = 0;
#pragma omp parallel num_threads(threads)
#pragma omp single
  size = omp_get_num_threads();
  return size;
}

TEST(ThreadTeam, IsWholeWhateverTheEnvironmentSays) {
  omp_set_dynamic(1);
  omp_set_max_active_levels(0);
  backends::require_team(5);
  EXPECT_EQ(size_of_team(5), 5);
  EXPECT_EQ(omp_get_dynamic(), 0);
}

TEST(ThreadTeam, ThatIsSmallerIsRefused) {
  int refused = 0;
#pragma omp parallel num_threads(2) reduction(+ : refused)
  {
    try {
      backends::require_team(3);  // within a team there is no other
    } catch (const core::Unavailable&) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 2);
}

TEST(ThreadTeam, HasAThreadOfItsOwnByDefault) {
  EXPECT_GE(backends::default_team(), 1);
  EXPECT_NO_THROW(backends::require_team(1));
}

}  // namespace
}  // namespace rooflm::tests
