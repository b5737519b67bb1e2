// Which request is served next.
#include "serve/schedule.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rooflm::serve {
namespace {

TEST(RequestQueue, ShortestPromptFirstAndOfEqualOnesTheFirst) {
  RequestQueue queue(Schedule::shortest);
  queue.arrive({.request = 0, .prompt_tokens = 30});
  queue.arrive({.request = 1, .prompt_tokens = 10});
  queue.arrive({.request = 2, .prompt_tokens = 10});
  EXPECT_EQ(queue.take().request, 1U);
  EXPECT_EQ(queue.take().request, 2U);
  EXPECT_EQ(queue.take().request, 0U);
  EXPECT_TRUE(queue.is_empty());
}

TEST(RequestQueue, FairTakesTheUserWhoWasServedLeast) {
  RequestQueue queue(Schedule::fair);
  for (std::uint64_t i = 0; i < 3; ++i) queue.arrive({.request = i, .user = 1, .prompt_tokens = 10});
  EXPECT_EQ(queue.take().user, 1U);
  queue.count_tokens(1, 1);
  queue.arrive({.request = 9, .user = 2, .prompt_tokens = 10});
  queue.arrive({.request = 10, .user = 2, .prompt_tokens = 10});
  EXPECT_EQ(queue.take().user, 1U) << "who comes later begins where the others are";
  EXPECT_EQ(queue.take().user, 2U);
  queue.count_tokens(1, 1);
  EXPECT_EQ(queue.take().user, 2U) << "user 1 had two prompts and two tokens by now";
}

TEST(RequestQueue, UsersWithoutEndAreForgotten) {
  RequestQueue queue(Schedule::fair);
  for (std::uint64_t user = 0; user < 100'000; ++user) {
    queue.arrive({.request = user, .user = user, .prompt_tokens = 1});
    EXPECT_EQ(queue.take().user, user);
  }
  EXPECT_LT(queue.remembered_users(), 20'000U);
}

TEST(RequestQueue, NamesOfSchedules) {
  EXPECT_EQ(core::parse<Schedule>("fair"), Schedule::fair);
  EXPECT_THROW(core::parse<Schedule>("fairr"), core::UsageError);
}

}  // namespace
}  // namespace rooflm::serve
