// Serving a load at several rates, and what a record keeps of it.
#include "lab/serving_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "compile/recipe.h"
#include "core/error.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/stop_signals.h"
#include "lab/devices.h"
#include "lab/notes.h"
#include "lab/serving_cells.h"
#include "model/config.h"
#include "train/session.h"
#include "train/slot_decoder.h"

namespace rooflm::lab {
namespace {

constexpr double kAtOnce = std::numeric_limits<double>::infinity();
constexpr std::array kServingShares = {0.25, 0.5, 0.75, 1.0, 1.25};
constexpr std::uint64_t kPrompts = 0x70726f6d;

/// A decoder on this machine's clock; prompts are random tokens.
class DecoderServer : public TokenServer {
 public:
  DecoderServer(train::SlotDecoder& decoder, std::int64_t vocab, std::uint64_t seed)
      : decoder_(&decoder), prompt_(static_cast<std::size_t>(decoder.longest_prompt())) {
    for (std::size_t i = 0; i < prompt_.size(); ++i)
      prompt_[i] = static_cast<std::int32_t>(core::philox(seed, kPrompts, i)[0] % vocab);
  }
  [[nodiscard]] std::size_t slots() const override { return decoder_->slots(); }
  void join(std::size_t slot, const ServingRequest& request) override {
    static_cast<void>(
        decoder_->join(slot, std::span(prompt_).first(static_cast<std::size_t>(request.prompt_tokens))));
  }
  void decode() override { static_cast<void>(decoder_->decode()); }
  void leave(std::size_t slot) override { decoder_->leave(slot); }
  void start_clock() override { start_ = Clock::now(); }
  [[nodiscard]] double now_s() override {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }
  void wait_until(double time_s) override {
    std::this_thread::sleep_until(
        start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_s)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  train::SlotDecoder* decoder_;
  std::vector<std::int32_t> prompt_;
  Clock::time_point start_ = Clock::now();
};

/// From requests of the load that are served one by one.
LatencyLimits limits_alone(TokenServer& server, const ServingLoad& load) {
  constexpr std::int64_t kAlone = 8;
  ServingLoad few = load;
  few.requests = std::min(kAlone, load.requests);
  std::vector<double> ttft_s;
  std::vector<double> tpot_s;
  for (ServingRequest request : draw_requests(few, kAtOnce)) {
    request.new_tokens = std::max<std::int64_t>(request.new_tokens, 2);
    const ServedRequest served = serve(server, {&request, 1}, Schedule::fcfs).requests.front();
    core::StopSignals::check();
    ttft_s.push_back(served.first_token_s);
    tpot_s.push_back((served.finish_s - served.first_token_s) / static_cast<double>(request.new_tokens - 1));
  }
  return {.ttft_s = kSloScale * core::median(ttft_s), .tpot_s = kSloScale * core::median(tpot_s)};
}

/// A load as its row says it.
LoadRow row_of(const Point& point, Schedule schedule, double rate, const LatencyLimits& limits,
               const serve::BatchTimes& times) {
  const model::ModelConfig& c = point.config;
  return {.model = c.name,
          .configuration = fmt::format("{}, L={} C={} H={} F={} V={}", describe(point), c.layers, c.d_model,
                                       c.heads, c.d_ff, c.vocab),
          .device = point.device,
          .dtype = std::string(compile::dtype_name(point.step)),
          .engine = std::string(compile::name_of(point.step.engine)),
          .slots = point.batch,
          .positions = point.seq,
          .schedule = std::string(name_of(schedule)),
          .rate = rate,
          .times = times,
          .limits = limits};
}

double request_rate(const Served& served) {
  const double end_s = std::ranges::max(served.requests, {}, &ServedRequest::finish_s).finish_s;
  return static_cast<double>(served.requests.size()) / end_s;
}

/// One point, served with all schedules at all rates.
class ServingRun {
 public:
  ServingRun(const Point& point, const ServingSettings& settings, ServingCells& cells)
      : point_(&point), settings_(&settings), cells_(&cells), backend_(make_backend(point)) {
    session_.emplace(*backend_, point.config, point.step, settings.memory_limit_bytes.value_or(0));
    decoder_.emplace(*session_, model::CacheSize{.batch = point.batch, .positions = point.seq},
                     settings.load.longest_prompt());
    session_->initialise(point.seed);
    decoder_->warm_up();
    server_.emplace(*decoder_, point.config.vocab, point.seed);
    limits_ = limits_alone(*server_, settings.load);
  }

  /// False when a signal ended it. Without rates the first load is all requests at once, and rates are
  /// shares of what the schedule that serves it fastest reaches.
  bool run() {
    if (!settings_->rates.empty()) return serve_at(settings_->rates).has_value();
    const std::optional<double> most = serve_at({kAtOnce});
    if (!most) return false;
    std::vector<double> rates;
    for (const double share : kServingShares) rates.push_back(share * *most);
    return serve_at(rates).has_value();
  }

 private:
  /// The highest rate at which any schedule served; nothing when a signal ended it.
  std::optional<double> serve_at(const std::vector<double>& rates) {
    double most = 0;
    for (const double rate : rates) {
      for (const Schedule schedule : settings_->schedules) {
        const Served served = measure(rate, schedule);
        if (served.is_interrupted) return std::nullopt;
        most = std::max(most, request_rate(served));
      }
    }
    return most;
  }

  Served measure(double rate, Schedule schedule) {
    Served served = serve(*server_, draw_requests(settings_->load, rate), schedule);
    for (std::size_t slot = 0; slot < decoder_->slots(); ++slot) decoder_->leave(slot);
    if (served.is_interrupted) return served;
    cells_->add(row_of(*point_, schedule, rate, limits_, served.times), served.requests);
    note("  {}, {}: {} requests, {:.3g} requests/s", name_of(schedule),
         std::isfinite(rate) ? fmt::format("{:.3g} requests/s arrive", rate) : "all arrive at once",
         served.requests.size(), request_rate(served));
    return served;
  }

  const Point* point_;
  const ServingSettings* settings_;
  ServingCells* cells_;
  std::unique_ptr<backends::Backend> backend_;
  std::optional<train::Session> session_;
  std::optional<train::SlotDecoder> decoder_;
  std::optional<DecoderServer> server_;
  LatencyLimits limits_;
};

void check(const Point& point, const ServingLoad& load) {
  require_runs(point.device, "served");
  if (point.step.sharding.ranks() > 1 || point.step.micro_batches > 1)
    throw core::UsageError(
        "study serving runs on one rank: leave out --dp, --cp, --tp, --pp and --grad-accum");
  if (load.longest_prompt() > point.seq || load.longest_answer() > point.seq - load.longest_prompt()) {
    throw core::UsageError(
        fmt::format("--seq {}: prompts of up to {} and answers of up to {} tokens do not fit into it",
                    point.seq, load.longest_prompt(), load.longest_answer()));
  }
}

}  // namespace

void check_serving(std::span<const Point> points, const ServingLoad& load) {
  for (const Point& point : points) check(point, load);
}

std::vector<record::Cell> serving_cells(std::span<const Point> points, const ServingSettings& settings) {
  check_serving(points, settings.load);
  ServingCells cells;
  for (const Point& point : points) {
    note("{}", describe(point));
    if (!ServingRun(point, settings, cells).run()) break;
  }
  if (cells.is_empty()) core::StopSignals::check();
  return cells.take();
}

}  // namespace rooflm::lab
