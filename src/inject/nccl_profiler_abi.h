// What NCCL and a profiler plugin agree on (NCCL_PROFILER_PLUGIN; versions 1 to 5 of the interface, NCCL 2.23
// and later), as far as collectives and messages go. Declared here, so that the library is built without
// NCCL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rooflm::inject::nccl {

constexpr int kSuccess = 0;
/// Bits of the events that a plugin asks for, and of an event's type.
constexpr int kCollective = 1 << 1;
constexpr int kMessage = 1 << 2;  ///< from one rank to another

/// Version 1 numbers functions and types.
struct CollectiveV1 {
  const char* communicator;
  std::uint64_t hash, sequence;
  std::uint8_t function;
  const void* from;
  void* to;
  std::size_t count;
  int root;
  std::uint8_t type;
};
struct MessageV1 {
  const char* communicator;
  std::uint64_t hash;
  std::uint8_t function;
  void* buffer;
  std::uint8_t type;
  std::size_t count;
  int peer;
};

/// Versions 2 and 3 name them.
struct CollectiveV2 {
  const char* communicator;
  std::uint64_t hash, sequence;
  const char* function;
  const void* from;
  void* to;
  std::size_t count;
  int root;
  const char* type;
};
struct MessageV2 {
  const char* communicator;
  std::uint64_t hash;
  const char* function;
  void* buffer;
  const char* type;
  std::size_t count;
  int peer;
};

/// From version 4 on the communicator is that of the context.
struct CollectiveV4 {
  std::uint64_t sequence;
  const char* function;
  const void* from;
  void* to;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t channels, warps;
  const char *algorithm, *protocol;
};
struct MessageV4 {
  const char* function;
  void* buffer;
  const char* type;
  std::size_t count;
  int peer;
};

/// `Type` has 8 bits, from version 5 on 64.
template <class Type, class Collective, class Message>
struct Event {
  Type type;
  void* parent;
  int rank;
  union {
    Collective collective;
    Message message;
  };
};
using EventV1 = Event<std::uint8_t, CollectiveV1, MessageV1>;
using EventV2 = Event<std::uint8_t, CollectiveV2, MessageV2>;
using EventV4 = Event<std::uint8_t, CollectiveV4, MessageV4>;
using EventV5 = Event<std::uint64_t, CollectiveV4, MessageV4>;

using InitV1 = int (*)(void** context, int* mask);
using InitV4 = int (*)(void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks,
                       int rank, void* log);
using InitV5 = int (*)(void** context, std::uint64_t hash, int* mask, const char* name, int nodes, int ranks,
                       int rank, void* log);

template <class Init, class OfEvent>
struct Plugin {
  const char* name;
  Init init;
  int (*start)(void* context, void** handle, OfEvent* event);
  int (*stop)(void* handle);
  int (*note_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};
using PluginV1 = Plugin<InitV1, EventV1>;
using PluginV2 = Plugin<InitV1, EventV2>;
using PluginV4 = Plugin<InitV4, EventV4>;
using PluginV5 = Plugin<InitV5, EventV5>;

}  // namespace rooflm::inject::nccl
