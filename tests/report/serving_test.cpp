// Served requests: figures that can be worked out by hand.
#include "report/runs/serving.h"

#include <gtest/gtest.h>

#include <array>

#include "report/findings/answers.h"
#include "report/verify/verify.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"

namespace rooflm::report {
namespace {

/// user, prompt, new, arrival, admitted, first, finish
using Times = std::array<double, 7>;

void add_request(std::vector<record::Cell>& cells, std::int64_t row, double load, const Times& times) {
  constexpr std::array kColumns = {"user",       "prompt_tokens", "new_tokens", "arrival_s",
                                   "admitted_s", "first_token_s", "finish_s"};
  cells.push_back({record::kServingRequestSeries, row, "load", load, "", ""});
  for (std::size_t i = 0; i < kColumns.size(); ++i)
    cells.push_back({record::kServingRequestSeries, row, kColumns.at(i), times.at(i), "", ""});
}

void add_load(std::vector<record::Cell>& cells, std::int64_t row, std::optional<double> rate) {
  const auto number = [&](const char* column, double value) {
    cells.push_back({record::kServingSeries, row, column, value, "", ""});
  };
  for (const auto& [column, text] : {std::pair{"model", "tiny"},
                                     {"device", "cpu"},
                                     {"dtype", "fp32"},
                                     {"engine", "fused"},
                                     {"schedule", "fcfs"}})
    cells.push_back({record::kServingSeries, row, column, {}, text, ""});
  number("slots", 2);
  if (rate) number("rate", *rate);
  number("prefill_s", 3);
  number("decode_s", 4);
  number("used_slot_s", 6);
  number("ttft_limit_s", 1.5);
  number("tpot_limit_s", 0.6);
}

/// At 0.5 requests/s the second request waits a second for its slot; all at once it waits 9, past the limit.
RecordSet made_up(const record::TemporaryFolder& folder, double finish_s = 4) {
  std::vector<record::Cell> cells;
  add_load(cells, 0, std::nullopt);
  add_request(cells, 0, 0, {0, 10, 5, 0, 0, 1, 3});
  add_request(cells, 1, 0, {1, 10, 5, 0, 9, 10, 12});
  add_load(cells, 1, 0.5);
  add_request(cells, 2, 1, {0, 10, 5, 0, 0, 1, finish_s});
  add_request(cells, 3, 1, {1, 20, 9, 2, 2.25, 3, 8});
  record::Writer writer(folder / "a.rooflm", "study serving");
  writer.add(cells);
  writer.add(record::Environment{.key = "study", .value = "title", .unit = {}});
  writer.add(record::Environment{.key = "study_name", .value = "serving", .unit = {}});
  writer.finish();
  return load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
}

TEST(Serving, FiguresAreThoseOfTheRequests) {
  const record::TemporaryFolder folder;
  const RecordSet set = made_up(folder, 3);
  const auto loads = loads_of(set.files[0]);
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_FALSE(loads[0].rate);
  const ServedLoad& slow = loads[1];
  EXPECT_EQ(slow.duration_s(), 8);
  EXPECT_EQ(slow.requests_per_s(), 0.25);
  EXPECT_EQ(slow.tokens(), 14);
  EXPECT_EQ(slow.batch_share(), 6.0 / 8);
  EXPECT_EQ(slow.requests[1].queue_s(), 0.25);
  EXPECT_EQ(slow.requests[1].ttft_s(), 1);
  EXPECT_EQ(slow.requests[1].tpot_s(), 5.0 / 8);
  EXPECT_EQ(slow.requests[1].latency_s(), 6);
  EXPECT_EQ(slow.slo_share(), 0.5) << "0.625 s per token are more than the limit";
  // The first user is done after 3 s: by then the second has its prompt and its first token.
  const auto users = users_of(slow);
  ASSERT_EQ(users.size(), 2U);
  EXPECT_EQ(users[0].served, 15);
  EXPECT_EQ(users[1].served, 21);
  EXPECT_EQ(users[0].s_per_token, 3.0 / 5);
  EXPECT_EQ(users[1].s_per_token, 6.0 / 9);
}

TEST(Serving, JainsIndexIsOneWhereAllAreEqual) {
  EXPECT_EQ(jain_index(std::array{2.0, 2.0, 2.0}), 1);
  EXPECT_EQ(jain_index(std::array{5.0, 0.0, 0.0, 0.0}), 0.25);
  EXPECT_NEAR(*jain_index(std::array{4.0, 1.0, 1.0, 1.0}), 49.0 / 76, 1e-12);
  EXPECT_FALSE(jain_index(std::array{0.0, 0.0}));
}

/// A server takes what comes: three requests within two seconds, of which one failed before it was admitted.
TEST(Serving, AServersRecordHasItsRequestsAndBatches) {
  const record::TemporaryFolder folder;
  std::vector<record::Cell> cells;
  add_load(cells, 0, std::nullopt);
  std::erase_if(cells, [](const record::Cell& cell) { return cell.col.ends_with("_s"); });
  cells.push_back({record::kServingSeries, 0, "arrivals", {}, record::kObserved, ""});
  add_request(cells, 0, 0, {0, 10, 5, 1, 1, 2, 4});
  add_request(cells, 1, 0, {1, 20, 3, 2, 2.5, 3, 5});
  const auto number = [&](const char* series, std::int64_t row, const char* column, double value) {
    cells.push_back({series, row, column, value, "", ""});
  };
  for (const auto& [column, value] :
       {std::pair{"load", 0.0}, {"prompt_tokens", 4}, {"arrival_s", 3}, {"finish_s", 3.5}})
    number(record::kServingRequestSeries, 2, column, value);
  cells.push_back({record::kServingRequestSeries, 2, "finish", {}, "cancelled", ""});
  for (const auto& [column, value] :
       {std::pair{"begin_s", 1.0}, {"end_s", 2}, {"steps", 1}, {"texts", 1}, {"prefill_tokens", 10}})
    number(record::kServingBatchSeries, 0, column, value);
  for (const auto& [column, value] :
       {std::pair{"begin_s", 3.0}, {"end_s", 4}, {"steps", 4}, {"texts", 2}, {"decode_tokens", 8}})
    number(record::kServingBatchSeries, 1, column, value);
  record::Writer(folder / "a.rooflm", "serve").add(cells);
  const RecordSet set = load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
  const auto loads = loads_of(set.files[0]);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_EQ(loads[0].rate, 1) << "three arrivals, two seconds from the first to the last";
  EXPECT_EQ(loads[0].failed.size(), 1U);
  EXPECT_EQ(loads[0].prefill_s, 1);
  EXPECT_EQ(loads[0].batch_share(), 1.0) << "both slots had a text while tokens were made";
  EXPECT_TRUE(saturations(loads).empty()) << "nobody chose the rate";
  const View requests = make_view("requests", set);
  ASSERT_EQ(requests.tables.at(0).table.rows.size(), 3U);
  EXPECT_EQ(requests.tables[0].table.rows[1].number("queue_s"), 0.5);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*requests.tables[0].table.rows[2].find("ttft_s")));
  EXPECT_EQ(requests.tables[0].table.rows[2].text("finish"), "cancelled");
  ASSERT_EQ(requests.charts.size(), 2U) << "the timeline, and latency over the rate";
  double running = 0;
  double waiting = 0;
  for (const ChartPoint& point : requests.charts[0].series.at(0).points) running += point.y / 200 * 4;
  for (const ChartPoint& point : requests.charts[0].series.at(1).points) waiting += point.y / 200 * 4;
  EXPECT_NEAR(running, 3 + 2.5, 1e-9);
  EXPECT_NEAR(waiting, 0.5 + 0.5, 1e-9);
  const View batches = make_view("batches", set);
  EXPECT_EQ(batches.tables.at(0).table.rows.at(1).number("step_s"), 0.25);
  EXPECT_EQ(batches.charts.at(0).series.at(0).points.size(), 1U) << "prompts are no steps";
}

/// A client that sends all at once sends them at 0.
TEST(Serving, ARequestThatFailedAtTheBeginHasNoTimeToAToken) {
  const record::TemporaryFolder folder;
  std::vector<record::Cell> cells;
  add_load(cells, 0, std::nullopt);
  add_request(cells, 0, 0, {0, 10, 5, 0, 0, 1, 3});
  for (const char* column : {"load", "arrival_s", "finish_s"})
    cells.push_back({record::kServingRequestSeries, 1, column, 0.0, "", ""});
  cells.push_back({record::kServingRequestSeries, 1, "finish", {}, "error", ""});
  record::Writer(folder / "a.rooflm", "bench-serve").add(cells);
  const View view = make_view("requests", load(std::vector<std::filesystem::path>{folder / "a.rooflm"}));
  ASSERT_EQ(view.tables.at(0).table.rows.size(), 2U);
  EXPECT_EQ(view.tables[0].table.rows[0].number("ttft_s"), 1);
  for (const char* column : {"queue_s", "ttft_s", "tpot_s"})
    EXPECT_TRUE(std::holds_alternative<std::monostate>(*view.tables[0].table.rows[1].find(column))) << column;
}

TEST(Serving, TheViewHasRatesUsersAndWhereItSaturates) {
  const record::TemporaryFolder folder;
  const View view = make_view("serving", made_up(folder, 3));
  ASSERT_EQ(view.tables.size(), 3U);
  const Table& loads = view.tables[0].table;
  ASSERT_EQ(loads.rows.size(), 2U);
  EXPECT_EQ(loads.rows[0].text("rate"), "all at once");
  EXPECT_EQ(loads.rows[1].number("rate"), 0.5);
  EXPECT_EQ(loads.rows[1].number("tokens_per_s"), 14.0 / 8);
  EXPECT_EQ(loads.rows[1].number("ttft_median_s"), 1);
  EXPECT_EQ(loads.rows[1].number("queue_median_s"), 0.125);
  EXPECT_EQ(loads.rows[0].number("fairness_served"), 0.5) << "one has all until it is done";
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*loads.rows[1].find("fairness_served")))
      << "nobody competes";
  const Row& saturation = view.tables[1].table.rows.at(0);
  EXPECT_EQ(saturation.number("saturation_req_per_s"), 2.0 / 12);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*saturation.find("rate_in_limits")));
  EXPECT_EQ(view.tables[2].table.rows.size(), 4U);
  ASSERT_EQ(view.charts.size(), 3U);
  ASSERT_EQ(view.charts[0].series.size(), 2U) << "median and p99";
  EXPECT_EQ(view.charts[0].series[0].name, "fcfs, median") << "the slots are the same everywhere";
  EXPECT_EQ(view.charts[0].series[0].points.size(), 1U) << "all at once is no rate";
  const record::TemporaryFolder other;
  EXPECT_TRUE(make_view("cells", made_up(other, 3)).tables.empty());
}

TEST(Serving, TheAnswerNamesTheSaturation) {
  const record::TemporaryFolder folder;
  EXPECT_EQ(answer_of(made_up(folder)),
            "tiny fp32 with 2 slots saturates: fcfs at 0.167 requests/s (1 tokens/s); 90% of requests stayed "
            "within 1.50 s to the first token and 600 ms per further token at none of the rates tried with "
            "fcfs. With all requests at once, Jain's index of tokens over users is 0.50 with fcfs.");
}

TEST(Serving, ALowerRateThatFailedBoundsTheRateInLimits) {
  // A request that waits two seconds for its first token breaks the limit of 1.5.
  const auto load_at = [](double rate, bool keeps) {
    ServedLoad load{.schedule = "fcfs", .slots = 2, .rate = rate, .ttft_limit_s = 1.5, .tpot_limit_s = 0.6};
    load.requests.push_back({.new_tokens = 1, .first_token_s = keeps ? 1.0 : 2.0, .finish_s = 3});
    return load;
  };
  const std::vector<ServedLoad> lucky = {load_at(4, true), load_at(2, false), load_at(1, true),
                                         load_at(0.5, true), load_at(8, false)};
  const auto all = saturations(lucky);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].highest->rate, 1.0);
  EXPECT_EQ(all[0].failing->rate, 2.0);
  EXPECT_EQ(all[0].beyond->rate, 4.0);
  const std::vector<ServedLoad> twice = {load_at(1, true), load_at(2, true), load_at(2, false)};
  EXPECT_EQ(saturations(twice)[0].highest->rate, 1.0) << "2 failed the second time";
  EXPECT_EQ(saturations(twice)[0].beyond, nullptr);
  const std::vector<ServedLoad> none = {load_at(2, false), load_at(4, true)};
  EXPECT_EQ(saturations(none)[0].highest, nullptr);
  EXPECT_EQ(saturations(none)[0].beyond->rate, 4.0);
  const std::vector<ServedLoad> good = {load_at(2, true), load_at(4, true)};
  EXPECT_EQ(saturations(good)[0].highest->rate, 4.0);
}

TEST(Serving, TheAnswerSaysThatAHigherRateDidByChance) {
  const record::TemporaryFolder folder;
  std::vector<record::Cell> cells;
  add_load(cells, 0, 2);  // its time to the first token is past the limit
  add_request(cells, 0, 0, {0, 10, 5, 0, 0, 2, 3});
  add_load(cells, 1, 4);
  add_request(cells, 1, 1, {0, 10, 5, 0, 0, 1, 3});
  const auto answer = [&](const char* name) {
    record::Writer writer(folder / name, "study serving");
    writer.add(cells);
    writer.add(record::Environment{.key = "study", .value = "title", .unit = {}});
    writer.add(record::Environment{.key = "study_name", .value = "serving", .unit = {}});
    writer.finish();
    return answer_of(load(std::vector<std::filesystem::path>{folder / name}));
  };
  EXPECT_NE(answer("none").find("at no rate up to 2 requests/s with fcfs (at 4 by chance, not at 2)."),
            std::string::npos)
      << answer("again");
  add_load(cells, 2, 1);
  add_request(cells, 2, 2, {0, 10, 5, 0, 0, 1, 3});
  EXPECT_NE(answer("one").find("up to 1 requests/s with fcfs (at 4 by chance, not at 2)."),
            std::string::npos);
}

TEST(Serving, ARequestsTimesMustFollowEachOther) {
  const record::TemporaryFolder good;
  static_cast<void>(made_up(good));
  EXPECT_TRUE(all_hold(verify(record::Reader(good / "a.rooflm"))));
  const record::TemporaryFolder bad;
  static_cast<void>(made_up(bad, 0.5));
  const auto results = verify(record::Reader(bad / "a.rooflm"));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].violated, 1U);
  EXPECT_EQ(results[0].checked, 12U);
}

}  // namespace
}  // namespace rooflm::report
