// Served loads as cells of a record.
#include "lab/serving_cells.h"

#include <cmath>

namespace rooflm::lab {

void ServingCells::add(const LoadRow& load, std::span<const ServedRequest> requests) {
  ++load_;
  loads_.next_row();
  loads_.text("model", load.model);
  loads_.text("configuration", load.configuration);
  loads_.text("device", load.device);
  loads_.text("dtype", load.dtype);
  loads_.text("engine", load.engine);
  loads_.number("slots", static_cast<double>(load.slots));
  loads_.number("positions", static_cast<double>(load.positions));
  loads_.text("schedule", load.schedule);
  if (load.is_observed) {
    loads_.text("arrivals", record::kObserved);
  } else if (std::isfinite(load.rate)) {
    loads_.number("rate", load.rate, "req/s");
  }
  if (load.times.decode_steps > 0) {  // a client does not see them
    loads_.number("decode_steps", static_cast<double>(load.times.decode_steps));
    loads_.number("prefill_s", load.times.prefill_s, "s");
    loads_.number("decode_s", load.times.decode_s);
    loads_.number("used_slot_s", load.times.used_slot_s);
  }
  if (load.limits.ttft_s > 0) loads_.number("ttft_limit_s", load.limits.ttft_s, "s");
  if (load.limits.tpot_s > 0) loads_.number("tpot_limit_s", load.limits.tpot_s, "s");
  for (const ServedRequest& served : requests) add(served);
}

void ServingCells::add(const ServedRequest& served) {
  requests_.next_row();
  requests_.number("load", static_cast<double>(load_));
  requests_.number("user", static_cast<double>(served.request.user));
  requests_.number("prompt_tokens", static_cast<double>(served.request.prompt_tokens));
  requests_.number("new_tokens", static_cast<double>(served.request.new_tokens));
  requests_.number("arrival_s", served.request.arrival_s);
  if (served.was_admitted()) requests_.number("admitted_s", served.admitted_s);
  if (served.has_token()) requests_.number("first_token_s", served.first_token_s);
  requests_.number("finish_s", served.finish_s);
  if (served.guessed_tokens > 0) {
    requests_.number("guessed_tokens", static_cast<double>(served.guessed_tokens));
    requests_.number("accepted_tokens", static_cast<double>(served.accepted_tokens));
  }
  if (!served.finish.empty()) requests_.text("finish", served.finish);
}

void ServingCells::add(const serve::BatchStep& batch, std::int64_t steps) {
  batches_.next_row();
  batches_.number("load", static_cast<double>(load_));
  batches_.number("begin_s", batch.begin_s);
  batches_.number("end_s", batch.end_s);
  batches_.number("steps", static_cast<double>(steps));
  batches_.number("texts", static_cast<double>(batch.texts));
  batches_.number("prefill_tokens", static_cast<double>(batch.prefill_tokens));
  batches_.number("decode_tokens", static_cast<double>(batch.decode_tokens));
}

std::vector<record::Cell> ServingCells::take() {
  std::vector<record::Cell> cells = loads_.take();
  for (Cells* more : {&requests_, &batches_}) {
    const std::vector<record::Cell> rows = more->take();
    cells.insert(cells.end(), rows.begin(), rows.end());
  }
  return cells;
}

}  // namespace rooflm::lab
