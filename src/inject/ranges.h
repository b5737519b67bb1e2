// Ranges and marks that a program opens and closes, whoever asked for them.
#pragma once

#include <cstdint>

#include "inject/stream_format.h"

namespace rooflm::inject {

/// Opens a range on the calling thread. `domain` tells apart stacks that do not know of each other, `name`
/// and `extra` are texts of the writer. Returns the depth within the domain where `wants_depth`, as NVTX
/// does.
int push_range(const void* domain, std::uint32_t name, RangeKind kind, std::uint32_t extra = 0,
               bool wants_depth = false);
/// Closes the last one of that domain and returns its name; 0, counted, where none was opened.
std::uint32_t pop_range(const void* domain);
/// A range that any thread may close; its number.
std::uint64_t start_range(std::uint32_t name, std::uint32_t extra);
/// Closes it and returns its name; 0, counted, where none has that number.
std::uint32_t end_range(std::uint64_t number);
/// A moment.
void add_mark(std::uint32_t name, RangeKind kind, std::uint32_t extra = 0);
/// Where another thread, as the operating system numbers it, is now.
void add_stack(std::uint32_t stack, std::uint32_t thread);
/// So many bytes of something that `name` names are in use on a device now.
void add_amount(std::uint32_t name, std::uint16_t device, std::int64_t bytes);
/// A block that a program's own allocator gave out (bytes > 0) or took back, at a time of the steady clock;
/// 0: before anybody asked.
void add_block(std::uint16_t device, std::uint64_t address, std::int64_t bytes, std::uint64_t time_ns);
/// A range whose times are known.
void add_range(std::uint32_t name, RangeKind kind, std::uint64_t start_ns, std::uint64_t end_ns);

}  // namespace rooflm::inject
