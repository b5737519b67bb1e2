// rooflm serve: a model behind an HTTP server in the form of OpenAI's API.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/inference_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "lab/server_record.h"
#include "serve/batcher.h"
#include "serve/http_server.h"
#include "serve/text_service.h"
#include "text/tokenizer.h"
#include "train/adapter_files.h"
#include "train/checkpoint.h"
#include "train/paged_decoder.h"
#include "train/slot_decoder.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

struct ServeOptions {
  InferenceOptions inference;
  std::string tokenizer;
  std::string host = "127.0.0.1", port = "8000";
  std::string slots = "8";
  std::string seq;
  std::string schedule = "fcfs";
  std::string waiting = "256";
  std::string timeout = "600";
  std::string name;
  std::string key;
  std::string chat;
  std::string chunk, pool, guesses, draft;
  std::string record;
  bool overwrite = false;
  bool dry_run = false;
};

constexpr std::int64_t kMostPort = 65535;
constexpr std::int64_t kPositionsWithout = 1024;  // of models that have no table of positions

std::string key_of(const ServeOptions& options) {
  if (!options.key.empty()) return options.key;
  const char* const set = std::getenv("ROOFLM_API_KEY");
  return set == nullptr ? "" : set;
}

/// Most tokens of a text: as asked, within what the model has.
std::int64_t positions_of(const ServeOptions& options, const model::ModelConfig& config) {
  const std::int64_t most = config.max_seq > 0 ? config.max_seq : std::numeric_limits<std::int64_t>::max();
  if (options.seq.empty()) return std::min(kPositionsWithout, most);
  const std::int64_t asked = parse_integer("--seq", options.seq, 2);
  if (asked > most)
    throw core::UsageError(
        fmt::format("--seq {} is beyond the {} positions of {}", asked, most, config.name));
  return asked;
}

serve::ServedModel served_model(const ServeOptions& options, const LoadedModel& loaded,
                                std::int64_t positions) {
  const fs::path texts = train::directory_with("tokenizer.json", loaded.directory);
  const fs::path tokenizer = options.tokenizer.empty() ? texts : fs::path(options.tokenizer);
  // As typed: the folder of train leads to that of a checkpoint.
  const fs::path directory = fs::absolute(options.inference.model()).lexically_normal();
  const fs::path last = directory.has_filename() ? directory.filename() : directory.parent_path().filename();
  serve::ServedModel model{.name = options.name.empty() ? last.string() : options.name,
                           .tokenizer = text::Tokenizer::load(tokenizer),
                           .vocab = loaded.point.config.vocab,
                           .positions = positions,
                           .longest_prompt = positions - 1};
  if (!options.chat.empty()) {
    model.chat = serve::ChatTemplate::named(options.chat);
  } else {
    model.chat = serve::ChatTemplate::of_model(texts);
  }
  if (!model.chat) {
    model.why_no_chat =
        "the model has no chat template that is known here: use /v1/completions, or start the server with "
        "--chat-template";
  }
  return model;
}

/// What -o says, or nothing: the record of a server is made for those who ask.
class ServedRecord {
 public:
  ServedRecord(const ServeOptions& options, lab::LoadRow load) {
    if (options.record.empty()) return;
    file_.emplace(options.record, options.overwrite, "serve");
    log_.emplace(file_->writer(), std::move(load));
  }
  [[nodiscard]] serve::ServerLog* log() { return log_ ? &*log_ : nullptr; }
  /// A full disk ends the record and not the server.
  void flush() {
    if (!log_ || has_failed_) return;
    try {
      log_->flush();
    } catch (const core::Error& error) {
      has_failed_ = true;
      note("the record ends here: {}", error.what());
    }
  }
  /// Throws where it is not whole.
  void finish() {
    if (!log_) return;
    log_->flush();
    file_->finish();
  }

 private:
  std::optional<CommandRecord> file_;
  std::optional<lab::ServerRecord> log_;
  bool has_failed_ = false;
};

/// Tells the service when a signal asks to stop, and has the record written every second until then.
class StopWatch {
 public:
  StopWatch(serve::TextService& service, ServedRecord& record)
      : thread_([&service, &record, this] {
          constexpr auto kLook = std::chrono::milliseconds(50);
          constexpr int kLooksPerFlush = 20;
          int looks = 0;
          while (!is_done_) {
            std::this_thread::sleep_for(kLook);
            if (core::StopSignals::received() != 0 && !service.is_stopping()) service.stop();
            if (++looks % kLooksPerFlush == 0) record.flush();
          }
        }) {}
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
  ~StopWatch() {
    is_done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

/// Most guesses of a text and step; 0: nobody guesses.
std::int64_t guesses_of(const ServeOptions& options) {
  constexpr std::int64_t kMostGuesses = 32;
  constexpr std::int64_t kGuessesOfDraft = 4;
  if (options.guesses.empty()) return options.draft.empty() ? 0 : kGuessesOfDraft;
  const std::int64_t guesses = parse_integer("--guess", options.guesses, 0);
  if (guesses > kMostGuesses) throw core::UsageError(fmt::format("--guess is at most {}", kMostGuesses));
  if (guesses == 0 && !options.draft.empty())
    throw core::UsageError("--guess 0 leaves --draft nothing to guess");
  return guesses;
}

/// Keys and values in blocks where somebody asks for what needs them.
std::unique_ptr<train::BatchDecoder> make_decoder(const ServeOptions& options, LoadedModel& loaded,
                                                  const serve::ServedModel& model, std::int64_t slots) {
  constexpr std::int64_t kMostChunk = 65536;
  constexpr std::int64_t kUsualChunk = 256;
  const std::int64_t guesses = guesses_of(options);
  const bool is_needed = guesses > 0 || !options.pool.empty();
  const std::int64_t chunk = options.chunk.empty() ? (is_needed ? kUsualChunk : 0)
                                                   : parse_integer("--prefill-chunk", options.chunk, 0);
  if (chunk > kMostChunk) throw core::UsageError(fmt::format("--prefill-chunk is at most {}", kMostChunk));
  if (chunk == 0 && is_needed)
    throw core::UsageError(
        "--guess, --draft and --kv-tokens need chunked prefill: --prefill-chunk must not be 0");
  if (chunk == 0) {
    return std::make_unique<train::SlotDecoder>(
        *loaded.session, model::CacheSize{.batch = slots, .positions = model.positions}, model.longest_prompt,
        train::SlotDecoder::Choice::caller);
  }
  return std::make_unique<train::PagedDecoder>(
      *loaded.session,
      train::PagedOptions{.slots = slots,
                          .positions = model.positions,
                          .longest_prompt = model.longest_prompt,
                          .chunk = std::min(chunk, model.longest_prompt),
                          .pool = options.pool.empty() ? 0 : parse_integer("--kv-tokens", options.pool),
                          .guesses = guesses});
}

/// Who guesses tokens, with the model that does it where --draft names one.
class Speculation {
 public:
  /// Its engines are made, its weights are not read yet.
  Speculation(const ServeOptions& options, const LoadedModel& loaded, const serve::ServedModel& model,
              std::int64_t slots) {
    if (guesses_of(options) == 0) return;
    if (options.draft.empty()) {
      guesser_ = std::make_unique<serve::NgramGuesser>();
      return;
    }
    draft_ = options.inference.for_model("--draft", options.draft).open(options.slots, "1");
    require_same_tokens(options, loaded, model);
    const std::int64_t most = draft_->point.config.max_seq;
    const std::int64_t positions = most > 0 ? std::min(most, model.positions) : model.positions;
    train::verify_weights(draft_->directory, draft_->point.config);
    decoder_ = std::make_unique<train::PagedDecoder>(
        *draft_->session,
        train::PagedOptions{.slots = slots, .positions = positions, .longest_prompt = positions});
    guesser_ = std::make_unique<serve::DraftGuesser>(*decoder_);
  }
  void load() {
    if (!draft_) return;
    draft_->session->load(draft_->directory);
    decoder_->warm_up();
  }
  [[nodiscard]] serve::Guesser* guesser() { return guesser_.get(); }

 private:
  /// A token of one model is that of the other.
  void require_same_tokens(const ServeOptions& options, const LoadedModel& loaded,
                           const serve::ServedModel& model) const {
    const auto tokenizer = text::Tokenizer::load(train::directory_with("tokenizer.json", draft_->directory));
    bool is_same = tokenizer.vocab_size() == model.tokenizer.vocab_size() &&
                   draft_->point.config.vocab == loaded.point.config.vocab;
    for (std::uint32_t id = 0; is_same && id < tokenizer.vocab_size(); ++id)
      is_same = tokenizer.token_bytes(id) == model.tokenizer.token_bytes(id);
    if (!is_same)
      throw core::InputError(fmt::format("--draft {}: its vocabulary is not that of {}: it cannot guess",
                                         options.draft, options.inference.model()));
  }

  std::optional<LoadedModel> draft_;
  std::unique_ptr<train::PagedDecoder> decoder_;
  std::unique_ptr<serve::Guesser> guesser_;
};

lab::LoadRow load_row(const LoadedModel& loaded, const serve::ServedModel& model, std::int64_t slots,
                      serve::Schedule schedule) {
  const compile::StepOptions& step = loaded.point.step;
  return {.model = model.name,
          .configuration = fmt::format("{} with {} slots of {} tokens", model.name, slots, model.positions),
          .device = loaded.point.device,
          .dtype = std::string(compile::dtype_name(step)),
          .engine = std::string(compile::name_of(step.engine)),
          .slots = slots,
          .positions = model.positions,
          .schedule = std::string(name_of(schedule))};
}

int run(const ServeOptions& options) {
  const auto schedule = core::parse<serve::Schedule>(options.schedule);
  const std::string key = key_of(options);
  constexpr std::int64_t kMostWaiting = 100'000;
  constexpr std::int64_t kMostSlots = 4096;
  const auto most_waiting = parse_integer("--max-waiting", options.waiting);
  const auto slots = parse_integer("--slots", options.slots);
  if (most_waiting > kMostWaiting)
    throw core::UsageError(fmt::format("--max-waiting is at most {}", kMostWaiting));
  if (slots > kMostSlots) throw core::UsageError(fmt::format("--slots is at most {}", kMostSlots));
  const auto port = parse_integer("--port", options.port, 0);
  if (port > kMostPort) throw core::UsageError(fmt::format("--port is at most {}, got {}", kMostPort, port));
  const auto timeout = parse_integer("--request-timeout", options.timeout);
  check_outputs({{"-o", options.record}}, {}, options.overwrite);
  LoadedModel loaded = options.inference.open(options.slots, "1");
  const std::int64_t positions = positions_of(options, loaded.point.config);
  const serve::ServedModel model = served_model(options, loaded, positions);
  if (options.dry_run) {
    show_dry_run(fmt::format("serve {} with {} slots of {} tokens on {}, at {} port {}", model.name, slots,
                             positions, loaded.point.device, options.host, port),
                 {});
    return 0;
  }
  train::verify_weights(loaded.directory, loaded.point.config);
  const auto decoder = make_decoder(options, loaded, model, slots);
  Speculation speculation(options, loaded, model, slots);
  loaded.session->load(loaded.directory);
  decoder->warm_up();
  speculation.load();
  const core::StopSignals signals;
  ServedRecord record(options, load_row(loaded, model, slots, schedule));
  serve::TextService service(*decoder, model.tokenizer, static_cast<std::size_t>(most_waiting),
                             std::chrono::seconds(timeout), record.log(), speculation.guesser());
  const serve::HttpServer server(service, model,
                                 {.host = options.host, .port = static_cast<int>(port), .key = key});
  note("serving {} on {}: http://{}:{}/v1 ({} slots of {} tokens, {}{}{})", core::printable(model.name),
       loaded.point.device, options.host, server.port(), slots, positions, name_of(schedule),
       model.chat ? ", chat template " + model.chat->name() : "", key.empty() ? "" : ", with a key");
  {
    const StopWatch watch(service, record);
    serve::run_batches(service, schedule);
  }
  record.finish();
  const serve::ServerMetrics counts = service.metrics();
  note("stopped after {} prompt tokens and {} new ones", counts.prompt_tokens, counts.generation_tokens);
  return 0;
}

}  // namespace

Body declare_serve(CommandLine& line) {
  auto o = std::make_shared<ServeOptions>();
  o->inference.add_to(line);
  line.add_option("--tokenizer", o->tokenizer, "tokenizer.json or a directory (default: in --model)")
      .type_name("PATH");
  line.add_option("--host", o->host, "Address to listen on; 0.0.0.0: all addresses of this machine")
      .type_name("ADDRESS")
      .show_default();
  line.add_option("--port", o->port, "Port to listen on (0: any that is free)").type_name("N").show_default();
  line.add_option("--slots", o->slots, "Texts generated at once").type_name("N").show_default();
  line.add_option("--seq", o->seq,
                  "Most tokens of a prompt and its answer (default: the model's positions, at most 1024)")
      .type_name("N");
  line.add_option(
          "--schedule", o->schedule,
          "Which request is next: fcfs, fair (by the user that requests name), shortest (prompt), batch")
      .type_name("NAME")
      .show_default();
  line.add_option("--max-waiting", o->waiting, "Requests that may wait for a slot; more get status 429")
      .type_name("N")
      .show_default();
  line.add_option("--request-timeout", o->timeout,
                  "Seconds after which an answer ends with the tokens so far")
      .type_name("S")
      .show_default();
  line.add_option("--served-model-name", o->name,
                  "Name of the model in requests (default: that of the directory)")
      .type_name("NAME");
  line.add_option(
          "--api-key", o->key,
          "Clients must send it as a bearer token (or set ROOFLM_API_KEY, which stays out of process lists)")
      .type_name("KEY");
  std::string names;
  for (const std::string& name : serve::ChatTemplate::names()) names += (names.empty() ? "" : ", ") + name;
  line.add_option("--chat-template", o->chat, "Chat template: " + names + " (default: the model's own)")
      .type_name("NAME");
  line.add_option("--prefill-chunk", o->chunk,
                  "Chunked prefill: maximum prompt tokens per step (default: whole prompts, while the other "
                  "texts wait; "
                  "256 with --kv-tokens or --guess)")
      .type_name("N");
  line.add_option("--kv-tokens", o->pool,
                  "Size of the KV cache in tokens, over all texts (default: slots times --seq)")
      .type_name("N");
  line.add_option(
          "--guess", o->guesses,
          "Speculative decoding: maximum tokens guessed per step, from the text's own n-grams or by --draft "
          "(default: 0, with --draft 4)")
      .type_name("N");
  line.add_option("--draft", o->draft, "Speculative decoding: a smaller draft model with the same vocabulary")
      .type_name("DIR");
  line.add_option("-o,--output", o->record,
                  "Write requests and batches to this run record, every second (report --view requests)")
      .type_name("FILE.rooflm");
  line.add_flag("--overwrite", o->overwrite, "Overwrite an existing record");
  add_dry_run(line, o->dry_run, "");
  line.footer(
      "POST /v1/completions and /v1/chat/completions, with streaming, GET /v1/models,\n"
      "/metrics (Prometheus) and /health, as clients of OpenAI's API expect them.\n"
      "Requests join and leave the batch between two tokens. On SIGTERM or Ctrl-C, the\n"
      "server finishes the answers in progress, then exits.\n\n"
      "Example: rooflm serve --model out/ --port 8000\n"
      "         curl localhost:8000/v1/completions -d '{\"prompt\": \"And God said\", \"max_tokens\": 20}'");
  return [o] { return run(*o); };
}

}  // namespace rooflm::cli
