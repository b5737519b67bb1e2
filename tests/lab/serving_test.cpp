// Requests that arrive while others are served, on a clock that is made up.
#include "lab/serving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/statistics.h"

namespace rooflm::lab {
namespace {

constexpr double kAtOnce = std::numeric_limits<double>::infinity();

/// Reads a prompt in 1 s and gives a token in 0.1 s, however many slots there are.
class MadeUpServer : public TokenServer {
 public:
  explicit MadeUpServer(std::size_t slots) : taken_(slots, false) {}
  [[nodiscard]] std::size_t slots() const override { return taken_.size(); }
  void join(std::size_t slot, const ServingRequest& /*request*/) override {
    EXPECT_FALSE(taken_.at(slot));
    taken_[slot] = true;
    now_s_ += 1;
  }
  void decode() override {
    EXPECT_TRUE(std::ranges::any_of(taken_, [](bool taken) { return taken; }));
    now_s_ += 0.1;
  }
  void leave(std::size_t slot) override { taken_.at(slot) = false; }
  void start_clock() override { now_s_ = 0; }
  [[nodiscard]] double now_s() override { return now_s_; }
  void wait_until(double time_s) override {
    EXPECT_GT(time_s, now_s_);
    now_s_ = time_s;
  }

 private:
  std::vector<bool> taken_;
  double now_s_ = 0;
};

ServingRequest request(double arrival_s, std::int64_t new_tokens, std::size_t user = 0) {
  return {.user = user, .prompt_tokens = 10, .new_tokens = new_tokens, .arrival_s = arrival_s};
}

/// The second request joins while the first is read on, whose tokens wait for its prompt; the third waits for
/// a slot, and the server for the fourth.
TEST(Serve, RequestsJoinAndLeaveBetweenTokens) {
  MadeUpServer server(2);
  const std::vector<ServingRequest> load = {request(0, 11), request(1.45, 6), request(1.5, 2),
                                            request(10, 1)};
  const Served served = serve(server, load, Schedule::fcfs);
  const auto& r = served.requests;
  ASSERT_EQ(r.size(), 4U);
  EXPECT_NEAR(r[0].first_token_s, 1, 1e-9);
  EXPECT_NEAR(r[1].admitted_s, 1.5, 1e-9);
  EXPECT_NEAR(r[1].first_token_s, 2.5, 1e-9);
  EXPECT_NEAR(r[0].finish_s, 3.0, 1e-9);  // 5 tokens before the other's prompt and 5 after it
  EXPECT_NEAR(r[1].finish_s, 3.0, 1e-9);
  EXPECT_NEAR(r[2].admitted_s, 3.0, 1e-9);
  EXPECT_NEAR(r[2].finish_s, 4.1, 1e-9);
  EXPECT_NEAR(r[3].admitted_s, 10, 1e-9);
  EXPECT_NEAR(r[3].finish_s, 11, 1e-9);
  EXPECT_EQ(served.times.decode_steps, 11);
  EXPECT_NEAR(served.times.decode_s, 1.1, 1e-9);
  EXPECT_NEAR(served.times.used_slot_s, 0.5 + 2 * 0.5 + 0.1, 1e-9);
  EXPECT_NEAR(served.times.prefill_s, 4, 1e-9);
}

TEST(Serve, StaticBatchesWaitUntilAllSlotsAreFree) {
  MadeUpServer server(2);
  const std::vector<ServingRequest> load = {request(0, 2), request(0, 21), request(0, 1)};
  EXPECT_NEAR(serve(server, load, Schedule::fcfs).requests[2].admitted_s, 2.1, 1e-9);
  const Served served = serve(server, load, Schedule::batch);
  EXPECT_NEAR(served.requests[2].admitted_s, 4.0, 1e-9);
  EXPECT_LT(served.times.used_slot_s, 2 * served.times.decode_s);
}

/// One user has six requests waiting before another's first: by turns, the other is the next but one.
TEST(Serve, FairServesWhoWasServedLeast) {
  std::vector<ServingRequest> load;
  for (int i = 0; i < 6; ++i) load.push_back(request(0, 3, 0));
  load.push_back(request(0.5, 3, 1));
  MadeUpServer server(1);
  const auto place_of_last = [&](Schedule schedule) {
    const auto served = serve(server, load, schedule).requests;
    return std::ranges::count_if(
        served, [&](const ServedRequest& other) { return other.admitted_s < served[6].admitted_s; });
  };
  EXPECT_EQ(place_of_last(Schedule::fcfs), 6);
  EXPECT_LE(place_of_last(Schedule::fair), 2);
}

/// A user who was away while another was served has no more of a claim than that other.
TEST(Serve, FairSavesUpNothing) {
  std::vector<ServingRequest> load;
  for (int i = 0; i < 10; ++i) load.push_back(request(0, 3, 0));
  for (int i = 0; i < 10; ++i) load.push_back(request(6, 3, 1));
  MadeUpServer server(1);
  const auto served = serve(server, load, Schedule::fair).requests;
  const double last_s = std::ranges::max(served, {}, &ServedRequest::finish_s).finish_s;
  // Without that the first user would wait until the second had as much as it had got: five requests.
  std::vector<double> of_first;
  for (int i = 0; i < 10; ++i) of_first.push_back(served[static_cast<std::size_t>(i)].admitted_s);
  std::ranges::sort(of_first);
  for (std::size_t i = 1; i < of_first.size(); ++i) EXPECT_LT(of_first[i] - of_first[i - 1], 3 * 1.2 + 1e-9);
  EXPECT_NEAR(last_s, 20 * 1.2, 1e-6);
}

TEST(DrawRequests, ArePoissonAtTheRateWithTheSameWorkAtEachRate) {
  ServingLoad load{.requests = 4000, .prompt = {4, 6}, .answer = {2, 3}, .users = {3, 1}, .seed = 7};
  const auto slow = draw_requests(load, 2);
  const auto fast = draw_requests(load, 20);
  ASSERT_EQ(slow.size(), 4000U);
  std::vector<double> between;
  std::set<std::int64_t> prompts;
  std::int64_t of_first = 0;
  for (std::size_t i = 0; i < slow.size(); ++i) {
    EXPECT_EQ(slow[i].prompt_tokens, fast[i].prompt_tokens);
    EXPECT_EQ(slow[i].new_tokens, fast[i].new_tokens);
    EXPECT_EQ(slow[i].user, fast[i].user);
    prompts.insert(slow[i].prompt_tokens);
    if (slow[i].user == 0) ++of_first;
    if (i > 0) between.push_back(slow[i].arrival_s - slow[i - 1].arrival_s);
  }
  EXPECT_EQ(prompts, (std::set<std::int64_t>{4, 5, 6}));
  EXPECT_NEAR(static_cast<double>(of_first) / 4000, 0.75, 0.03);
  // An exponential distribution has its mean as its deviation.
  EXPECT_NEAR(core::mean(between), 0.5, 0.03);
  EXPECT_NEAR(core::sample_std(between), 0.5, 0.05);
  EXPECT_NEAR(fast.back().arrival_s * 10, slow.back().arrival_s, 1e-6 * slow.back().arrival_s);
}

TEST(DrawRequests, EndWithTheTimeAndTakeLengthsInTurn) {
  const ServingLoad load{.requests = 100, .lengths = {{7, 3}, {2, 9}}, .most_s = 5};
  const auto requests = draw_requests(load, 4);
  EXPECT_LT(requests.size(), 60U);
  EXPECT_GT(requests.size(), 3U);
  EXPECT_LE(requests.back().arrival_s, 5);
  EXPECT_EQ(requests[0].prompt_tokens, 7);
  EXPECT_EQ(requests[1].new_tokens, 9);
  EXPECT_EQ(requests[2].prompt_tokens, 7);
  EXPECT_EQ(load.longest_prompt(), 7);
  EXPECT_EQ(load.longest_answer(), 9);
  const auto at_once = draw_requests(load, kAtOnce);
  EXPECT_EQ(at_once.size(), 100U);
  EXPECT_EQ(at_once.back().arrival_s, 0);
  EXPECT_EQ(draw_requests({.most_s = 0}, 1e-3).size(), 1U);
}

TEST(ParseSchedule, KnowsThree) {
  for (const Schedule schedule : {Schedule::fcfs, Schedule::fair, Schedule::batch})
    EXPECT_EQ(core::parse<Schedule>(name_of(schedule)), schedule);
  EXPECT_THROW(core::parse<Schedule>("fcsf"), core::UsageError);
}

}  // namespace
}  // namespace rooflm::lab
