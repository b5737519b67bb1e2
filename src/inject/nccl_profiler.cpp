// What NCCL tells a profiler plugin.
//
// NCCL calls these functions on the thread that starts its kernels, right after it has started one: an
// event's own times are those of the host. Readers find the kernel by thread and time.
#include "inject/nccl_profiler.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <string>
#include <string_view>

#include "inject/session.h"

namespace rooflm::inject::nccl {
namespace {

/// A communicator, as NCCL's context of it. What is 0 is not known: versions before 4 tell it with each
/// event.
struct Communicator {
  std::uint64_t hash = 0;
  int ranks = 0, rank = 0;
};

/// Between its start and its end.
struct Open {
  std::uint32_t name = 0, extra = 0;
  std::uint64_t start_ns = 0, sequence = 0;
  std::int64_t bytes = 0;
};

/// One event, of whatever version.
struct Told {
  std::string_view function{}, type{}, algorithm{}, protocol{};
  std::uint64_t hash = 0, sequence = 0;
  std::size_t count = 0;
  int ranks = 0, rank = 0, root = 0, peer = -1;
  bool is_message = false;
};

constexpr std::array<std::string_view, 8> kFunctions = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                                        "AllReduce", "SendRecv", "Send",      "Recv"};
constexpr std::array<std::string_view, 12> kTypes = {
    "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

template <std::size_t Size>
std::string_view name_of(const std::array<std::string_view, Size>& names, std::uint8_t number) {
  return number < Size ? names[number] : "unknown";
}

std::string_view shown(const char* text) { return text == nullptr ? "" : text; }

/// Of one element, by the digits of its name: "ncclBfloat16" has 2, "ncclFloat8e4m3" 1.
std::int64_t bytes_of_type(std::string_view type) {
  const std::size_t at = type.find_first_of("0123456789");
  if (at == std::string_view::npos) return 1;
  int bits = 0;
  for (std::size_t i = at; i < type.size() && std::isdigit(static_cast<unsigned char>(type[i])) != 0; ++i) {
    bits = bits * 10 + (type[i] - '0');
    if (bits > 64) return 1;
  }
  constexpr int kBits = 8;
  return bits < kBits ? 1 : bits / kBits;
}

/// Names within the text of an object.
std::string safe(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') text += c;
  }
  return text;
}

std::string describe(const Told& told) {
  std::array<char, 160> numbers{};
  std::snprintf(numbers.data(), numbers.size(), R"({"communicator":"%llx","ranks":%d,"rank":%d,"count":%llu)",
                static_cast<unsigned long long>(told.hash), told.ranks, told.rank,
                static_cast<unsigned long long>(told.count));
  std::string text = numbers.data();
  const auto add = [&](const char* key, std::string_view value) {
    if (!value.empty()) text += std::string(",\"") + key + "\":\"" + safe(value) + "\"";
  };
  constexpr std::string_view kPrefix = "nccl";
  add("dtype", told.type.substr(told.type.starts_with(kPrefix) ? kPrefix.size() : 0));
  add("algorithm", told.algorithm);
  add("protocol", told.protocol);
  if (told.is_message) text += ",\"peer\":" + std::to_string(told.peer);
  return text + "}";
}

/// Where it will be added, nullptr without a recording.
Open* open(const Told& told) {
  Session* session = Session::current();
  if (session == nullptr || !session->is_on()) return nullptr;
  constexpr std::size_t kMost = std::size_t{1} << 50U;
  const std::size_t count = told.count < kMost ? told.count : 0;
  return new Open{.name = session->writer().text(safe(told.function)),
                  .extra = session->writer().text(describe(told)),
                  .start_ns = now_ns(),
                  .sequence = told.sequence,
                  .bytes = static_cast<std::int64_t>(count) * bytes_of_type(told.type)};
}

int begin(void** context, int* mask, Communicator communicator) {
  *context = nullptr;
  *mask = 0;
  try {
    if (Session::begin() == nullptr) return kSuccess;
    *context = new Communicator(communicator);
    *mask = kCollective | kMessage;
  } catch (...) {  // NCCL's own work goes on
  }
  return kSuccess;
}

int init_v1(void** context, int* mask) { return begin(context, mask, {}); }

int init_v4(void** context, int* mask, const char* /*name*/, std::uint64_t hash, int /*nodes*/, int ranks,
            int rank, void* /*log*/) {
  return begin(context, mask, {.hash = hash, .ranks = ranks, .rank = rank});
}

int init_v5(void** context, std::uint64_t hash, int* mask, const char* /*name*/, int /*nodes*/, int ranks,
            int rank, void* /*log*/) {
  return begin(context, mask, {.hash = hash, .ranks = ranks, .rank = rank});
}

Told told_of(const CollectiveV1& event) {
  return {.function = name_of(kFunctions, event.function),
          .type = name_of(kTypes, event.type),
          .hash = event.hash,
          .sequence = event.sequence,
          .count = event.count,
          .root = event.root};
}
Told told_of(const MessageV1& event) {
  return {.function = name_of(kFunctions, event.function),
          .type = name_of(kTypes, event.type),
          .hash = event.hash,
          .count = event.count,
          .peer = event.peer};
}
Told told_of(const CollectiveV2& event) {
  return {.function = shown(event.function),
          .type = shown(event.type),
          .hash = event.hash,
          .sequence = event.sequence,
          .count = event.count,
          .root = event.root};
}
Told told_of(const MessageV2& event) {
  return {.function = shown(event.function),
          .type = shown(event.type),
          .hash = event.hash,
          .count = event.count,
          .peer = event.peer};
}
Told told_of(const CollectiveV4& event) {
  return {.function = shown(event.function),
          .type = shown(event.type),
          .algorithm = shown(event.algorithm),
          .protocol = shown(event.protocol),
          .sequence = event.sequence,
          .count = event.count,
          .root = event.root};
}
Told told_of(const MessageV4& event) {
  return {
      .function = shown(event.function), .type = shown(event.type), .count = event.count, .peer = event.peer};
}

template <class OfEvent>
int start(void* context, void** handle, OfEvent* event) {
  *handle = nullptr;
  const bool is_message = event->type == kMessage;
  if (context == nullptr || (!is_message && event->type != kCollective)) return kSuccess;
  try {
    const auto* communicator = static_cast<const Communicator*>(context);
    Told told = is_message ? told_of(event->message) : told_of(event->collective);
    told.is_message = is_message;
    told.rank = event->rank;
    told.ranks = communicator->ranks;
    if (communicator->hash != 0) told.hash = communicator->hash;
    *handle = open(told);
  } catch (...) {  // no memory: this one is lost
  }
  return kSuccess;
}

int stop(void* handle) {
  const auto* event = static_cast<Open*>(handle);
  if (event == nullptr) return kSuccess;
  try {
    if (Session* session = Session::current()) {
      session->writer().add({.kind = RowKind::range,
                             .range = RangeKind::collective,
                             .name = event->name,
                             .start_ns = event->start_ns,
                             .end_ns = now_ns(),
                             .place = thread_number(),
                             .extra = event->extra,
                             .bytes = event->bytes,
                             .other = event->sequence});
    }
  } catch (...) {  // no memory: this one is lost
  }
  delete event;
  return kSuccess;
}

int note_state(void* /*handle*/, int /*state*/, void* /*arguments*/) { return kSuccess; }

int finalize(void* context) {
  delete static_cast<Communicator*>(context);
  return kSuccess;
}

template <class Init, class OfEvent>
Plugin<Init, OfEvent> plugin(Init init) {
  return {.name = "rooflm",
          .init = init,
          .start = start<OfEvent>,
          .stop = stop,
          .note_state = note_state,
          .finalize = finalize};
}

}  // namespace

PluginV1 plugin_v1() { return plugin<InitV1, EventV1>(init_v1); }
PluginV2 plugin_v2() { return plugin<InitV1, EventV2>(init_v1); }
PluginV4 plugin_v4() { return plugin<InitV4, EventV4>(init_v4); }
PluginV5 plugin_v5() { return plugin<InitV5, EventV5>(init_v5); }

}  // namespace rooflm::inject::nccl
