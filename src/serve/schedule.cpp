// Which of the waiting requests is served next.
#include "serve/schedule.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace rooflm::serve {
namespace {

constexpr double kNewToken = 2;            // a prompt's token counts 1
constexpr std::size_t kMostUsers = 10000;  // whose service is remembered

}  // namespace

void RequestQueue::arrive(const Waiting& waiting) {
  if (schedule_ == Schedule::fair) lift(waiting.user);
  waiting_.push_back(waiting);
}

std::deque<Waiting>::iterator RequestQueue::find_next() {
  auto next = waiting_.begin();
  if (schedule_ == Schedule::fair) {
    next = std::ranges::min_element(waiting_, {}, [&](const Waiting& w) { return served_[w.user]; });
  } else if (schedule_ == Schedule::shortest) {
    next = std::ranges::min_element(waiting_, {}, &Waiting::prompt_tokens);
  }
  return next;
}

Waiting RequestQueue::take() {
  const auto next = find_next();
  const Waiting taken = *next;
  waiting_.erase(next);
  last_user_ = taken.user;
  if (schedule_ == Schedule::fair) served_[taken.user] += static_cast<double>(taken.prompt_tokens);
  return taken;
}

void RequestQueue::count_tokens(std::uint64_t user, std::int64_t tokens) {
  if (schedule_ == Schedule::fair) served_[user] += kNewToken * static_cast<double>(tokens);
}

/// Nobody saves up service by not asking for it.
void RequestQueue::lift(std::uint64_t user) {
  if (std::ranges::find(waiting_, user, &Waiting::user) != waiting_.end()) return;
  if (served_.size() > kMostUsers) forget_idle_users();
  double least = last_user_ ? served_[*last_user_] : 0;
  if (!waiting_.empty()) {
    least = std::numeric_limits<double>::infinity();
    for (const Waiting& waiting : waiting_) least = std::min(least, served_[waiting.user]);
  }
  served_[user] = std::max(served_[user], least);
}

/// Names of users come from outside: memory does not grow with them. Who is forgotten was served less than
/// half of the others and does not wait.
void RequestQueue::forget_idle_users() {
  std::vector<double> service;
  for (const auto& [user, tokens] : served_) service.push_back(tokens);
  const auto middle = service.begin() + static_cast<std::ptrdiff_t>(service.size() / 2);
  std::ranges::nth_element(service, middle);
  std::erase_if(served_, [&](const auto& entry) {
    return entry.second <= *middle && entry.first != last_user_ &&
           std::ranges::find(waiting_, entry.first, &Waiting::user) == waiting_.end();
  });
}

}  // namespace rooflm::serve
