// What the library exports: CUDA's and NVTX's entries, and the marks of the Python module.
#include <array>
#include <cstdint>

#include "inject/nccl_profiler.h"
#include "inject/nvtx.h"
#include "inject/ranges.h"
#include "inject/session.h"

#define ROOFLM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using rooflm::inject::RangeKind;
using rooflm::inject::Session;

/// The start of the step that runs, of the recorder's own marks.
std::uint64_t step_start_ns = 0;
/// Their ranges know of no others'.
const char kOwnRanges = 0;

rooflm::inject::StackSampler* stacks_of_session() {
  Session* session = Session::current();
  return session == nullptr ? nullptr : session->stacks();
}

}  // namespace

/// Called by the driver when it is initialized, from CUDA_INJECTION64_PATH. 1: all is well; the program goes
/// on either way.
ROOFLM_EXPORT int InitializeInjection() {  // NOLINT(readability-identifier-naming): CUDA names it
  try {
    if (Session* session = Session::begin()) session->start_device();
  } catch (...) {  // somebody else's program: nothing may come out of here
  }
  return 1;
}

/// Called by NVTX at a program's first range, from NVTX_INJECTION64_PATH; by each library that has ranges.
// NOLINTNEXTLINE(readability-identifier-naming): NVTX names it
ROOFLM_EXPORT int InitializeInjectionNvtx2(rooflm::inject::nvtx::ExportTable export_table) {
  try {
    if (Session::begin() == nullptr) return 0;
    return rooflm::inject::take_nvtx(export_table) ? 1 : 0;
  } catch (...) {
    return 0;
  }
}

// What NCCL looks for in the library that NCCL_PROFILER_PLUGIN names: the newest that it knows.
// NOLINTBEGIN(readability-identifier-naming): NCCL names them
ROOFLM_EXPORT rooflm::inject::nccl::PluginV1 ncclProfiler_v1;
ROOFLM_EXPORT rooflm::inject::nccl::PluginV2 ncclProfiler_v2;
ROOFLM_EXPORT rooflm::inject::nccl::PluginV2 ncclProfiler_v3;
ROOFLM_EXPORT rooflm::inject::nccl::PluginV4 ncclProfiler_v4;
ROOFLM_EXPORT rooflm::inject::nccl::PluginV5 ncclProfiler_v5;
rooflm::inject::nccl::PluginV1 ncclProfiler_v1 = rooflm::inject::nccl::plugin_v1();
rooflm::inject::nccl::PluginV2 ncclProfiler_v2 = rooflm::inject::nccl::plugin_v2();
rooflm::inject::nccl::PluginV2 ncclProfiler_v3 = rooflm::inject::nccl::plugin_v2();
rooflm::inject::nccl::PluginV4 ncclProfiler_v4 = rooflm::inject::nccl::plugin_v4();
rooflm::inject::nccl::PluginV5 ncclProfiler_v5 = rooflm::inject::nccl::plugin_v5();
// NOLINTEND(readability-identifier-naming)

// Marks of the Python module. All of them may be called at any time; without a recording they do nothing.

/// 1 where this process is recorded.
ROOFLM_EXPORT int rooflm_begin() { return Session::begin() == nullptr ? 0 : 1; }

/// The number of a name.
ROOFLM_EXPORT std::uint32_t rooflm_text(const char* text) {
  Session* session = Session::current();
  return session == nullptr ? 0 : session->writer().text(text);
}

ROOFLM_EXPORT void rooflm_push(std::uint32_t name, std::uint32_t kind) {
  rooflm::inject::push_range(&kOwnRanges, name, static_cast<RangeKind>(kind));
}

ROOFLM_EXPORT void rooflm_pop() { rooflm::inject::pop_range(&kOwnRanges); }

/// From here on the calling thread works on the gradient of that module.
ROOFLM_EXPORT void rooflm_gradient(std::uint32_t name) {
  rooflm::inject::add_mark(name, RangeKind::gradient);
}

/// That thread is at this place of its code now.
ROOFLM_EXPORT void rooflm_stack(std::uint32_t stack, std::uint32_t thread) {
  rooflm::inject::add_stack(stack, thread);
}

/// The first step begins, if none has.
ROOFLM_EXPORT void rooflm_begin_step() {
  if (step_start_ns == 0) step_start_ns = rooflm::inject::now_ns();
}

/// A step ended, and the next one begins: 1 where its activities are kept.
ROOFLM_EXPORT int rooflm_end_step() {
  Session* session = Session::current();
  if (session == nullptr) return 0;
  const std::uint64_t now = rooflm::inject::now_ns();
  if (step_start_ns != 0) {
    const char* name = session->is_traced() ? rooflm::inject::kTracedStep : rooflm::inject::kTimedStep;
    rooflm::inject::add_range(session->writer().text(name), RangeKind::step, step_start_ns, now);
  }
  const bool is_traced = session->end_step();
  step_start_ns = rooflm::inject::now_ns();  // without what switching took
  return is_traced ? 1 : 0;
}

ROOFLM_EXPORT void rooflm_fact(const char* key, const char* value) {
  if (Session* session = Session::current()) session->writer().fact(key, value);
}

/// Where the interpreter keeps frames (PythonLayout): stacks of threads that run have Python's frames, too. 0
/// where they cannot.
ROOFLM_EXPORT int rooflm_python(std::int64_t frame, std::int64_t inner_frame, std::int64_t code,
                                std::int64_t previous, std::int64_t instruction) {
  rooflm::inject::StackSampler* stacks = stacks_of_session();
  return stacks != nullptr && stacks->set_python({.frame = frame,
                                                  .inner_frame = inner_frame,
                                                  .code = code,
                                                  .previous = previous,
                                                  .instruction = instruction})
             ? 1
             : 0;
}

/// Where the interpreter lists its threads (PythonThreadList): those that wait have Python's frames, too.
ROOFLM_EXPORT void rooflm_python_threads(std::uint64_t state, std::int64_t next, std::int64_t previous,
                                         std::int64_t number) {
  rooflm::inject::StackSampler* stacks = stacks_of_session();
  if (stacks == nullptr) return;
  stacks->set_python_threads({.state = state, .links = {next, previous}, .number = number});
}

/// Waits until there are places without a name, half a second at least; 0 at the end.
ROOFLM_EXPORT int rooflm_wait_for_unnamed() {
  rooflm::inject::StackSampler* stacks = stacks_of_session();
  return stacks != nullptr && stacks->wait_for_unnamed() ? 1 : 0;
}

/// A place in Python's code that was seen and has no name yet: its code object and the bytes from there.
ROOFLM_EXPORT int rooflm_next_unnamed(std::uint64_t* code, std::uint64_t* offset) {
  rooflm::inject::StackSampler* stacks = stacks_of_session();
  std::array<std::uintptr_t, 2> place{};
  if (stacks == nullptr || !stacks->next_unnamed(place)) return 0;
  *code = place[0];
  *offset = place[1];
  return 1;
}

/// Copies memory of this process that may not be there. 0 where it is not.
ROOFLM_EXPORT int rooflm_peek(std::uint64_t address, void* into, std::uint64_t bytes) {
  return rooflm::inject::peek(address, into, bytes) ? 1 : 0;
}

/// A block of PyTorch's allocator was given out (bytes > 0) or taken back at that moment; 0: before.
ROOFLM_EXPORT void rooflm_block(std::uint32_t device, std::uint64_t address, std::int64_t bytes,
                                std::uint64_t time_ns) {
  rooflm::inject::add_block(static_cast<std::uint16_t>(device), address, bytes, time_ns);
}

/// So much there is of it on that device now.
ROOFLM_EXPORT void rooflm_amount(std::uint32_t name, std::uint32_t device, std::int64_t bytes) {
  rooflm::inject::add_amount(name, static_cast<std::uint16_t>(device), bytes);
}

/// From here on only these activities are kept: scripts/record_cost.py measures with it what each costs.
ROOFLM_EXPORT void rooflm_choose(const char* activities) {
  if (Session* session = Session::current()) session->choose(activities);
}
