// An HTTP server in the form of OpenAI's API.
#include "serve/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "ranks/proof.h"

namespace rooflm::serve {
namespace {

using nlohmann::json;

constexpr const char* kJson = "application/json";
constexpr auto kLook = std::chrono::milliseconds(200);  // whether the client is still there
constexpr int kUnauthorized = 401, kNotFound = 404, kTooLarge = 413, kTooMany = 429, kFailed = 500,
              kUnavailable = 503;

void send_error(httplib::Response& response, const ApiError& error) {
  response.status = error.status;
  if (error.status == kTooMany || error.status == kUnavailable) response.set_header("Retry-After", "1");
  response.set_content(error.body(), kJson);
}

/// In a time that does not depend on where they differ.
bool is_equal(std::string_view a, std::string_view b) {
  return ranks::is_same(ranks::prove(a, "api key", {}), ranks::prove(b, "api key", {}));
}

/// A thread for each connection, made when no other is free, up to a limit: connections that say nothing keep
/// theirs until they time out.
class Connections : public httplib::TaskQueue {
 public:
  explicit Connections(std::size_t most) : most_(most) {}

  void enqueue(std::function<void()> serve) override {
    {
      const std::scoped_lock lock(mutex_);
      waiting_.push_back(std::move(serve));
      if (waiting_.size() > idle_ && threads_.size() < most_) threads_.emplace_back([this] { work(); });
    }
    changed_.notify_one();
  }
  void shutdown() override {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    threads_.clear();  // joins
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [&] { return !waiting_.empty() || is_over_; });
      --idle_;
      if (waiting_.empty()) return;
      const std::function<void()> serve = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      serve();
      lock.lock();
    }
  }

  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::size_t idle_ = 0;  ///< threads
  bool is_over_ = false;
  std::vector<std::jthread> threads_;
};

/// The texts of one HTTP request. Those that nobody waits for any more are given up with it.
class Exchange {
 public:
  Exchange(TextService& service, const ServedModel& model, ApiRequest request, std::string id)
      : writer_(request, model, std::move(id), std::time(nullptr)), streams_(request.streams) {
    try {
      for (TextRequest& text : request.texts) answers_.push_back(service.submit(std::move(text)));
    } catch (...) {
      cancel();
      throw;
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { cancel(); }

  [[nodiscard]] bool streams() const { return streams_; }

  /// Waits for the first text's first news, which decide between an answer and an error. (A stream has begun
  /// by then, and tells of an error itself.)
  void begin() {
    while (!first_) first_ = answers_.front()->wait(kLook);
    if (first_->finish == Finish::failed)
      throw ApiError{.status = kFailed, .type = "server_error", .message = first_->error};
    if (first_->finish == Finish::cancelled)
      throw ApiError{.status = kUnavailable, .type = "service_unavailable", .message = first_->error};
  }

  /// Sends what there is until all is sent. False: the client has left.
  bool send(httplib::DataSink& sink) {
    for (; next_ < answers_.size(); ++next_) {
      while (true) {
        std::optional<TextNews> news = std::exchange(first_, std::nullopt);
        if (!news) news = answers_[next_]->wait(kLook);
        const std::string events = news ? writer_.add(next_, *news) : "";
        if (events.empty() ? !sink.is_writable() : !sink.write(events.data(), events.size())) return false;
        if (news && news->finish) break;
      }
    }
    const std::string rest = writer_.finish();
    if (!sink.write(rest.data(), rest.size())) return false;
    sink.done();
    return true;
  }

 private:
  void cancel() {
    for (const auto& answer : answers_) answer->cancel();
  }

  ApiAnswer writer_;
  bool streams_;
  std::vector<std::shared_ptr<Answer>> answers_;
  std::optional<TextNews> first_;
  std::size_t next_ = 0;  ///< of the answers
};

}  // namespace

struct HttpServer::Impl {
  Impl(TextService& of, const ServedModel& served, const HttpOptions& asked)
      : service(&of), model(&served), options(asked), seed(std::random_device{}()) {}

  void set_up() {
    server.new_task_queue = [this] { return new Connections(options.connections); };
    server.set_payload_max_length(options.most_body_bytes);
    // The library's own options let a second server have the same port.
    server.set_socket_options([this](int socket) {
      constexpr int kYes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof(kYes));
      listening = socket;
    });
    server.set_keep_alive_max_count(1000);
    server.set_tcp_nodelay(true);  // a token is a small packet that must not wait for the next
    server.set_pre_routing_handler([this](const auto& request, auto& response) {
      return is_allowed(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                           : httplib::Server::HandlerResponse::Handled;
    });
    server.set_exception_handler([](const auto&, auto& response, std::exception_ptr error) {
      try {
        std::rethrow_exception(std::move(error));
      } catch (const std::exception& failure) {
        send_error(response, {.status = kFailed, .type = "server_error", .message = failure.what()});
      }
    });
    server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const std::string what = response.status == kTooLarge ? "the body is too large"
                               : response.status == kNotFound
                                   ? fmt::format("{} {} is not here", request.method, request.path)
                                   : std::string("the request is not understood");
      send_error(response, {.status = response.status, .type = "invalid_request_error", .message = what});
    });
    for (const bool is_chat : {false, true}) {
      server.Post(is_chat ? "/v1/chat/completions" : "/v1/completions",
                  [this, is_chat](const httplib::Request&, httplib::Response& response,
                                  const httplib::ContentReader& reader) {
                    if (const auto body = read_body(reader, response)) complete(*body, response, is_chat);
                  });
    }
    server.Get("/v1/models", [this](const auto&, auto& response) {
      const json own = {{"id", model->name},
                        {"object", "model"},
                        {"created", started},
                        {"owned_by", "rooflm"},
                        {"max_model_len", model->positions}};
      response.set_content(json{{"object", "list"}, {"data", json::array({own})}}.dump(), kJson);
    });
    server.Get("/metrics", [this](const auto&, auto& response) {
      response.set_content(service->metrics().text(), "text/plain; version=0.0.4");
    });
    server.Get("/health", [this](const auto&, auto& response) {
      const bool stops = service->is_stopping();
      response.status = stops ? kUnavailable : 200;
      response.set_content(json{{"status", stops ? "stopping" : "ok"}}.dump(), kJson);
    });
  }

  /// Whether the key is the right one. Probes need none.
  bool is_allowed(const httplib::Request& request, httplib::Response& response) const {
    if (options.key.empty() || request.path == "/health") return true;
    if (is_equal(request.get_header_value("Authorization"), "Bearer " + options.key)) return true;
    response.set_header("WWW-Authenticate", "Bearer");
    send_error(response, {.status = kUnauthorized,
                          .type = "authentication_error",
                          .message = "the header 'Authorization: Bearer KEY' is missing or wrong"});
    return false;
  }

  /// The library bounds a body that tells its length, but not one in chunks.
  [[nodiscard]] std::optional<std::string> read_body(const httplib::ContentReader& reader,
                                                     httplib::Response& response) const {
    std::string body;
    const bool is_whole = reader([&](const char* data, std::size_t size) {
      if (body.size() + size > options.most_body_bytes) return false;
      body.append(data, size);
      return true;
    });
    if (is_whole) return body;
    response.set_header("Connection", "close");
    send_error(response,
               {.status = kTooLarge,
                .type = "invalid_request_error",
                .message = fmt::format("the body is larger than {} bytes", options.most_body_bytes)});
    return std::nullopt;
  }

  void complete(const std::string& body, httplib::Response& response, bool is_chat) {
    try {
      const std::uint64_t number = count++;
      const std::uint64_t own =
          (std::uint64_t{core::philox(seed, 0, number)[0]} << 32U) | core::philox(seed, 1, number)[0];
      auto exchange =
          std::make_shared<Exchange>(*service, *model, read_request(body, is_chat, *model, own >> 1U),
                                     fmt::format("{}-{:016x}", is_chat ? "chatcmpl" : "cmpl", own));
      if (!exchange->streams()) exchange->begin();
      response.set_chunked_content_provider(
          exchange->streams() ? "text/event-stream" : kJson,
          [exchange](std::size_t, httplib::DataSink& sink) { return exchange->send(sink); });
    } catch (const ApiError& error) {
      send_error(response, error);
    } catch (const TooManyWaiting& error) {
      send_error(response, {.status = kTooMany, .type = "rate_limit_error", .message = error.what()});
    } catch (const Stopping& error) {
      send_error(response, {.status = kUnavailable, .type = "service_unavailable", .message = error.what()});
    }
  }

  TextService* service;
  const ServedModel* model;
  HttpOptions options;
  std::uint64_t seed;
  std::atomic<std::uint64_t> count = 0;
  std::int64_t started = std::time(nullptr);
  int port = 0, listening = -1;
  httplib::Server server;
  std::atomic<bool> has_ended = false;
  std::thread listener;
};

HttpServer::HttpServer(TextService& service, const ServedModel& model, const HttpOptions& options)
    : impl_(std::make_unique<Impl>(service, model, options)) {
  impl_->set_up();
  if (options.port == 0) {
    impl_->port = impl_->server.bind_to_any_port(options.host);
  } else {
    impl_->port = impl_->server.bind_to_port(options.host, options.port) ? options.port : -1;
  }
  if (impl_->port <= 0) {
    throw core::InputError(
        fmt::format("cannot listen on {} port {}: it is taken, or not an address of this machine",
                    options.host, options.port));
  }
  ::listen(impl_->listening, SOMAXCONN);  // the library has five connections wait at most
  impl_->listener = std::thread([this] {
    impl_->server.listen_after_bind();
    impl_->has_ended = true;
  });
  // Until then stop() is not heard.
  while (!impl_->server.is_running() && !impl_->has_ended)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

HttpServer::~HttpServer() {
  impl_->server.stop();
  impl_->listener.join();
}

int HttpServer::port() const { return impl_->port; }

}  // namespace rooflm::serve
