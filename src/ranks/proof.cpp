// How a process shows that it knows the key of a job: HMAC-SHA-256 by nettle.
#include "ranks/proof.h"

#include <fmt/format.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <sys/random.h>

#include <cstdint>

#include "core/error.h"

namespace rooflm::ranks {
namespace {

const std::uint8_t* octets_of(const void* memory) { return static_cast<const std::uint8_t*>(memory); }

void fill_randomly(std::span<std::byte> to) {
  if (::getrandom(to.data(), to.size(), 0) != static_cast<ssize_t>(to.size()))
    throw core::Unavailable("no random numbers from the system for the key of a job");
}

}  // namespace

Proof prove(std::string_view key, std::string_view purpose,
            std::initializer_list<std::span<const std::byte>> parts) {
  hmac_sha256_ctx context;
  ::hmac_sha256_set_key(&context, key.size(), octets_of(key.data()));
  ::hmac_sha256_update(&context, purpose.size(), octets_of(purpose.data()));
  for (const auto part : parts) ::hmac_sha256_update(&context, part.size(), octets_of(part.data()));
  Proof proof{};
  ::hmac_sha256_digest(&context, proof.size(), reinterpret_cast<std::uint8_t*>(proof.data()));
  return proof;
}

bool is_same(const Proof& a, const Proof& b) { return ::memeql_sec(a.data(), b.data(), a.size()) != 0; }

Nonce make_nonce() {
  Nonce nonce{};
  fill_randomly(nonce);
  return nonce;
}

std::string make_key() {
  std::array<std::uint64_t, 2> words{};
  fill_randomly(std::as_writable_bytes(std::span(words)));
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

}  // namespace rooflm::ranks
