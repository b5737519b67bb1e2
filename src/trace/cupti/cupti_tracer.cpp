// Activities of NVIDIA GPUs, from CUPTI.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "trace/activity_tracer.h"
#include "trace/cupti/activity_buffers.h"
#include "trace/cupti/cupti_library.h"
#include "trace/cupti/decode.h"
#include "trace/cupti/device_limits.h"

namespace rooflm::trace {
namespace {

constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET,
                               CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                               CUPTI_ACTIVITY_KIND_OVERHEAD,
                               CUPTI_ACTIVITY_KIND_RUNTIME,
                               CUPTI_ACTIVITY_KIND_DRIVER};
/// The API calls that start work or wait for it. All others, ten times as many, are not traced: each costs
/// the host 0.4 us.
constexpr std::array kRuntimeCalls = {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020};
constexpr std::array kDriverCalls = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                                     CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                                     CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel};

template <class Calls>
bool contains(const Calls& calls, int call) {
  for (const auto wanted : calls) {
    if (static_cast<int>(wanted) == call) return true;
  }
  return false;
}

/// Static, because CUPTI's callbacks have no context argument: the pool whose buffers it fills.
std::atomic<ActivityBuffers*> active_buffers{nullptr};

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  ActivityBuffers* buffers = active_buffers.load();
  *buffer = buffers == nullptr ? nullptr : buffers->request();
  *bytes = *buffer == nullptr ? 0 : buffers->bytes();
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                          std::size_t /*bytes*/, std::size_t valid) {
  if (ActivityBuffers* buffers = active_buffers.load()) buffers->complete(buffer, valid);
}

/// Timestamps by the record's clock.
std::uint64_t CUPTIAPI now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

/// Does nothing: subscribing only detects whether another tool has subscribed.
void CUPTIAPI no_callback(void* /*user*/, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*call*/,
                          const void* /*data*/) {}

class CuptiTracer final : public ActivityTracer {
 public:
  explicit CuptiTracer(const TracerMemory& memory)
      : library_(CuptiLibrary::load()),
        buffers_(memory.buffers, memory.bytes_of_each),
        decoder_(library_.next_record, [this](CUpti_CallbackDomain domain, std::uint32_t call) {
          const char* name = nullptr;
          return library_.callback_name(domain, call, &name) == CUPTI_SUCCESS ? name : nullptr;
        }) {
    library_.check(library_.subscribe(&subscriber_, no_callback, nullptr), "attaching");
    active_buffers.store(&buffers_);
    try {
      prepare();
    } catch (...) {
      detach();
      throw;
    }
  }
  CuptiTracer(const CuptiTracer&) = delete;
  CuptiTracer& operator=(const CuptiTracer&) = delete;
  ~CuptiTracer() override {
    stop();
    static_cast<void>(library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    detach();
  }

  [[nodiscard]] std::string version() const override { return "CUPTI " + library_.version_text(); }

  void start(bool with_memory) override {
    try {
      for (const CUpti_ActivityKind kind : kKinds) library_.check(library_.enable(kind), "tracing");
      if (with_memory) library_.check(library_.enable(CUPTI_ACTIVITY_KIND_MEMORY2), "tracing memory");
      leave_out_calls();
    } catch (...) {
      stop();
      throw;
    }
  }

  void stop() noexcept override {
    for (const CUpti_ActivityKind kind : kKinds) static_cast<void>(library_.disable(kind));
    static_cast<void>(library_.disable(CUPTI_ACTIVITY_KIND_MEMORY2));
  }

  [[nodiscard]] DeviceTrace take() override {
    library_.check(library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "collecting activities");
    for (const FilledBuffer& filled : buffers_.take_filled()) {
      decoder_.add(filled.data, filled.bytes);
      buffers_.release(filled.data);
    }
    DeviceTrace trace = decoder_.take();
    trace.devices = query_limits();
    std::size_t dropped = 0;
    library_.check(library_.dropped_records(nullptr, 0, &dropped), "counting lost activities");
    // A refused buffer request loses at least one record.
    const std::int64_t refused = buffers_.refused() - std::exchange(refused_before_, buffers_.refused());
    trace.dropped += std::max(static_cast<std::int64_t>(dropped), refused);
    return trace;
  }

  [[nodiscard]] std::optional<std::uint64_t> node_id(std::uint64_t node) const override {
    std::uint64_t id = 0;
    const auto handle = reinterpret_cast<CUgraphNode>(static_cast<std::uintptr_t>(node));
    if (library_.graph_node_id(handle, &id) != CUPTI_SUCCESS) return std::nullopt;
    return id;
  }

 private:
  void prepare() {
    library_.check(library_.register_timestamp(now_ns), "giving it a clock");
    library_.check(library_.register_callbacks(give_buffer, take_buffer), "giving it buffers");
    library_.check(library_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), "naming threads");
    // The pool keeps its free buffers zeroed; otherwise CUPTI would zero them inside a launch.
    std::uint8_t are_zeroed = 1;
    std::size_t size = sizeof(are_zeroed);
    static_cast<void>(
        library_.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &are_zeroed));
  }

  /// Enabling a kind resets which calls are traced, so this must follow.
  void leave_out_calls() const {
    for (int call = 1; call < CUPTI_RUNTIME_TRACE_CBID_SIZE; ++call) {
      if (!contains(kRuntimeCalls, call)) {
        static_cast<void>(library_.enable_runtime(static_cast<CUpti_CallbackId>(call), 0));
      }
    }
    for (int call = 1; call < CUPTI_DRIVER_TRACE_CBID_SIZE; ++call) {
      if (!contains(kDriverCalls, call)) {
        static_cast<void>(library_.enable_driver(static_cast<CUpti_CallbackId>(call), 0));
      }
    }
  }

  void detach() noexcept {
    static_cast<void>(library_.unsubscribe(subscriber_));
    active_buffers.store(nullptr);
  }

  CuptiLibrary library_;
  ActivityBuffers buffers_;
  ActivityDecoder decoder_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::int64_t refused_before_ = 0;
};

}  // namespace

std::unique_ptr<ActivityTracer> open_cupti(const TracerMemory& memory) {
  return std::make_unique<CuptiTracer>(memory);
}

}  // namespace rooflm::trace
