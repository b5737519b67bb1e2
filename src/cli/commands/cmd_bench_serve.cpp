// rooflm bench-serve: loads a server of OpenAI's API and times its answers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/options/serving_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/rng.h"
#include "core/stop_signals.h"
#include "core/text_input.h"
#include "lab/serving_cells.h"
#include "serve/load_client.h"
#include "serve/server_log.h"

namespace rooflm::cli {
namespace {

struct BenchServeOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string model, key;
  bool is_chat = false;
  std::map<std::string, std::string> load;  ///< options of study serving, by name
  std::string prompts;
  std::string burstiness = "1";
  std::string most_at_once;
  std::string percentiles = "99";
  std::string goodput;
  std::string seed = "0";
  std::string timeout = "600";
  std::string result, record;
  bool overwrite = false;
};

/// Of the options of study serving, those that a client has.
constexpr std::array kLoadOptions = {"rate", "requests", "prompt-tokens", "new-tokens", "lengths", "users"};

/// "ttft:200,tpot:50", in milliseconds.
serve::Goodput parse_goodput(const std::string& text) {
  serve::Goodput goodput;
  if (text.empty()) return goodput;
  constexpr double kMs = 1e-3;
  for (const std::string& part : parse_names("--goodput", text)) {
    const auto colon = part.find(':');
    const std::string name = part.substr(0, colon);
    auto* const limit = name == "ttft"   ? &goodput.ttft_s
                        : name == "tpot" ? &goodput.tpot_s
                        : name == "e2el" ? &goodput.e2el_s
                                         : nullptr;
    if (limit == nullptr || colon == std::string::npos)
      throw core::UsageError(
          fmt::format("--goodput {}: expected ttft:MS, tpot:MS or e2el:MS", core::printable(part)));
    *limit = kMs * parse_number("--goodput", part.substr(colon + 1));
  }
  return goodput;
}

std::vector<double> parse_percentiles(const std::string& text) {
  std::vector<double> percentiles;
  constexpr double kMost = 100;
  for (const std::string& one : parse_names("--percentiles", text)) {
    percentiles.push_back(parse_number("--percentiles", one));
    if (percentiles.back() > kMost) throw core::UsageError(fmt::format("--percentiles {}: at most 100", one));
  }
  return percentiles;
}

/// Ids that are a byte in the vocabularies of GPT-2's and Llama's kind.
std::vector<std::int32_t> random_prompt(std::uint64_t seed, std::uint64_t request, std::int64_t tokens) {
  constexpr std::uint32_t kFirst = 32, kCount = 192;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<std::int32_t>(
        kFirst + core::philox(seed, request, static_cast<std::uint64_t>(i))[0] % kCount));
  return ids;
}

std::vector<std::string> read_prompts(const std::string& path) {
  std::vector<std::string> prompts;
  std::istringstream lines(core::read_text(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) throw core::InputError(fmt::format("{}: no prompts; write one per line", path));
  return prompts;
}

/// What stays the same at every rate: lengths, users, prompts.
class Workload {
 public:
  Workload(const BenchServeOptions& options, const lab::ServingLoad& load, bool is_chat)
      : seed_(static_cast<std::uint64_t>(parse_integer("--seed", options.seed, 0))),
        burstiness_(parse_number("--burstiness", options.burstiness, kLeastBurstiness)) {
    lab::ServingLoad drawn = load;
    drawn.seed = seed_;
    requests_ = lab::draw_requests(drawn, std::numeric_limits<double>::infinity());
    if (!options.prompts.empty()) prompts_ = read_prompts(options.prompts);
    if (prompts_.empty() && is_chat)
      throw core::UsageError("--chat needs texts: give a file of --prompts, one per line");
  }

  [[nodiscard]] std::vector<serve::LoadRequest> at(double rate) const {
    const auto times = serve::arrival_times(std::ssize(requests_), rate, burstiness_, seed_);
    std::vector<serve::LoadRequest> all;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      serve::LoadRequest one{
          .arrival_s = times[i], .new_tokens = requests_[i].new_tokens, .user = requests_[i].user};
      if (prompts_.empty()) {
        one.prompt_ids = random_prompt(seed_, i, requests_[i].prompt_tokens);
      } else {
        one.prompt = prompts_[i % prompts_.size()];
      }
      all.push_back(std::move(one));
    }
    return all;
  }
  [[nodiscard]] double burstiness() const { return burstiness_; }

 private:
  static constexpr double kLeastBurstiness = 1e-3;
  std::uint64_t seed_;
  double burstiness_;
  std::vector<lab::ServingRequest> requests_;
  std::vector<std::string> prompts_;
};

void add_to(lab::ServingCells& cells, const serve::LoadReport& report, const serve::Target& target) {
  lab::LoadRow row{
      .model = target.model,
      .configuration = fmt::format("{} at {}", target.model, target.origin),
      .device = "server",
      .dtype = "",
      .engine = "http",
      .slots = static_cast<std::int64_t>(report.most_at_once),
      .schedule = "",
      .rate = report.rate,
      .limits = {.ttft_s = report.goodput.ttft_s.value_or(0), .tpot_s = report.goodput.tpot_s.value_or(0)}};
  std::vector<lab::ServedRequest> requests;
  for (const serve::LoadResult& result : report.results) {
    const bool has_token = result.new_tokens > 0;
    requests.push_back({.request = {.user = result.user,
                                    .prompt_tokens = result.prompt_tokens,
                                    .new_tokens = result.new_tokens,
                                    .arrival_s = result.arrival_s},
                        .admitted_s = result.sent_s,
                        .first_token_s = has_token ? result.first_s : -1,
                        .finish_s = has_token ? result.last_s : result.sent_s,
                        .finish = result.is_ok() ? "" : std::string(name_of(serve::Finish::failed))});
  }
  if (!requests.empty()) cells.add(row, requests);
}

/// The first of the errors, and how many there were.
void note_errors(const serve::LoadReport& report) {
  const auto is_bad = [](const serve::LoadResult& result) { return !result.is_ok(); };
  const auto count = std::ranges::count_if(report.results, is_bad);
  if (count > 0)
    note("{} of {} requests failed; the first: {}", count, report.results.size(),
         std::ranges::find_if(report.results, is_bad)->error);
}

int run(const BenchServeOptions& options) {
  serve::Target target = serve::parse_target(options.url);
  target.is_chat = target.is_chat || options.is_chat;
  target.key = options.key;
  target.timeout_s = parse_number("--timeout", options.timeout, 1);
  lab::ServingSettings settings = serving_settings(options.load);
  if (settings.rates.empty()) settings.rates = {std::numeric_limits<double>::infinity()};
  const Workload workload(options, settings.load, target.is_chat);
  serve::LoadReport report{.burstiness = workload.burstiness(),
                           .goodput = parse_goodput(options.goodput),
                           .percentiles = parse_percentiles(options.percentiles)};
  if (!options.most_at_once.empty())
    report.most_at_once = static_cast<std::size_t>(parse_integer("--max-concurrency", options.most_at_once));
  if (report.most_at_once > serve::kMostAtOnce)
    throw core::UsageError(fmt::format("--max-concurrency is at most {}", serve::kMostAtOnce));
  if (!options.result.empty() && settings.rates.size() > 1)
    throw core::UsageError("--result has one load: give one --rate");
  check_outputs({{"--result", options.result}, {"-o", options.record}}, {options.prompts}, options.overwrite);
  target.model = options.model.empty() ? serve::first_model(target) : options.model;
  const core::StopSignals signals;
  std::optional<CommandRecord> record;
  if (!options.record.empty()) record.emplace(options.record, options.overwrite, "bench-serve");
  lab::ServingCells cells;
  bool has_failed = false;
  for (const double rate : settings.rates) {
    report.rate = rate;
    report.results = serve::run_load(target, workload.at(rate), report.most_at_once);
    if (report.results.empty()) break;
    write_out(report.text());
    flush_out();
    note_errors(report);
    has_failed =
        has_failed || std::ranges::any_of(report.results, [](const auto& one) { return !one.is_ok(); });
    add_to(cells, report, target);
    if (record) {
      record->writer().add(cells.take());
      record->writer().commit();
    }
    if (!options.result.empty()) core::write_file_atomically(options.result, report.json(target));
    if (core::StopSignals::received() != 0) break;
  }
  if (record) record->finish();
  core::StopSignals::check();
  return has_failed ? static_cast<int>(core::ExitCode::check_failed) : 0;
}

}  // namespace

Body declare_bench_serve(CommandLine& line) {
  auto o = std::make_shared<BenchServeOptions>();
  line.add_option("--url", o->url, "The server's address, up to /v1").type_name("URL").show_default();
  line.add_option("--model", o->model, "Name of the model (default: the first that the server names)")
      .type_name("NAME");
  line.add_option("--api-key", o->key, "Sent as a bearer token").type_name("KEY");
  line.add_flag("--chat", o->is_chat, "Use /chat/completions instead of /completions");
  for (const char* name : kLoadOptions)
    line.add_option("--" + std::string(name), o->load[name], serving_options().at(name)).type_name("LIST");
  line.add_option("--prompts", o->prompts,
                  "File of prompts, one per line, in turn (default: random token ids)")
      .type_name("FILE");
  line.add_option("--burstiness", o->burstiness,
                  "Shape of the gamma distribution of gaps; 1: a Poisson process, less: bursts")
      .type_name("X")
      .show_default();
  line.add_option("--max-concurrency", o->most_at_once,
                  "Requests in flight at once (default: 1000, which is the maximum)")
      .type_name("N");
  line.add_option("--percentiles", o->percentiles, "Percentiles of each latency")
      .type_name("LIST")
      .show_default();
  line.add_option("--goodput", o->goodput,
                  "Limits in ms that a good request meets: ttft:200,tpot:50,e2el:5000")
      .type_name("LIST");
  line.add_option("--seed", o->seed, "The same seed gives the same load").type_name("N").show_default();
  line.add_option("--timeout", o->timeout, "Seconds without a byte after which a request has failed")
      .type_name("S")
      .show_default();
  line.add_option("--result", o->result, "Write the JSON of `vllm bench serve` to this file")
      .type_name("FILE.json");
  line.add_option("-o,--output", o->record,
                  "Write loads and requests to this run record (report --view serving)")
      .type_name("FILE.rooflm");
  line.add_flag("--overwrite", o->overwrite, "Overwrite existing files");
  line.footer(
      "Prints what `vllm bench serve` prints, by its names: TPOT is (latency - TTFT) /\n"
      "(tokens - 1) of a request, which AIPerf calls inter-token latency; ITL is every\n"
      "gap between two events, of all requests together. Exit code 1 if a request\n"
      "fails.\n\n"
      "Example: rooflm bench-serve --requests 100 --rate 2,4,8 -o load.rooflm\n"
      "         rooflm report load.rooflm --view serving");
  return [o] { return run(*o); };
}

}  // namespace rooflm::cli
