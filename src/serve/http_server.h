// An HTTP server in the form of OpenAI's API.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "serve/openai.h"
#include "serve/text_service.h"

namespace rooflm::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                 ///< 0: any that is free
  std::string key{};               ///< that clients must send ("Authorization: Bearer KEY"); empty: none
  std::size_t connections = 1024;  ///< that are served at the same time, each by a thread; others wait
  std::size_t most_body_bytes = std::size_t{8} << 20U;
};

/// POST /v1/completions, /v1/chat/completions; GET /v1/models, /metrics, /health. Errors have OpenAI's form:
/// 400 names the key, 401 without the right key, 404, 413 for a body that is too large, 429 with Retry-After
/// when too many wait, 500 where a text failed, 503 while it stops. A client that leaves ends its texts.
class HttpServer {
 public:
  /// Listens. Both must outlive it. Throws core::InputError where the address cannot be had.
  HttpServer(TextService& service, const ServedModel& model, const HttpOptions& options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Closes the port, and waits for the answers that are being sent.
  ~HttpServer();

  [[nodiscard]] int port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rooflm::serve
