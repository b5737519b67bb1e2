// Continuous batching: requests get slots between two tokens, and leave them when they are done.
#include "serve/batcher.h"

namespace rooflm::serve {
namespace {

class Batcher {
 public:
  Batcher(Service& service, Schedule schedule)
      : service_(&service),
        queue_(schedule),
        is_static_(schedule == Schedule::batch),
        users_(service.slots()) {}

  BatchTimes run() {
    while (!service_->is_over()) {
      service_->look_for_arrivals(queue_);
      fill_slots();
      if (taken_ > 0) {
        decode();
      } else if (queue_.is_empty() && !service_->is_over()) {
        service_->wait();
      }
    }
    return times_;
  }

 private:
  void fill_slots() {
    if (is_static_ && taken_ > 0) return;
    for (std::size_t slot = 0; slot < users_.size(); ++slot) {
      while (!users_[slot] && !queue_.is_empty() && service_->has_room(queue_.next().request) &&
             !join(slot, queue_.take())) {
      }
      if (!is_static_) service_->look_for_arrivals(queue_);
    }
  }

  bool join(std::size_t slot, const Waiting& waiting) {
    const double begin_s = service_->now_s();
    if (!service_->join(slot, waiting.request)) return false;
    const double end_s = service_->now_s();
    users_[slot] = waiting.user;
    ++taken_;
    if (!service_->has_news(slot)) return true;
    times_.prefill_s += end_s - begin_s;
    service_->ran({.begin_s = begin_s, .end_s = end_s, .texts = 1, .prefill_tokens = waiting.prompt_tokens});
    add_tokens(slot, end_s);
    return true;
  }

  void decode() {
    const double begin_s = service_->now_s();
    const train::StepTokens tokens = service_->decode();
    const double end_s = service_->now_s();
    ++times_.decode_steps;
    times_.decode_s += end_s - begin_s;
    times_.used_slot_s += static_cast<double>(taken_) * (end_s - begin_s);
    service_->ran({.begin_s = begin_s,
                   .end_s = end_s,
                   .texts = static_cast<std::int64_t>(taken_),
                   .prefill_tokens = tokens.prefill,
                   .decode_tokens = tokens.texts});
    for (std::size_t slot = 0; slot < users_.size(); ++slot) {
      if (users_[slot] && service_->has_news(slot)) add_tokens(slot, end_s);
    }
  }

  void add_tokens(std::size_t slot, double now_s) {
    const Service::Took took = service_->took_tokens(slot, now_s);
    queue_.count_tokens(*users_[slot], took.tokens);
    if (!took.is_done) return;
    users_[slot].reset();
    --taken_;
  }

  Service* service_;
  RequestQueue queue_;
  bool is_static_;
  std::vector<std::optional<std::uint64_t>> users_;  ///< by slot; none: it is free
  std::size_t taken_ = 0;                            ///< slots
  BatchTimes times_;
};

}  // namespace

BatchTimes run_batches(Service& service, Schedule schedule) { return Batcher(service, schedule).run(); }

}  // namespace rooflm::serve
