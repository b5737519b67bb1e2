// Activities of NVIDIA GPUs, from CUPTI, in somebody else's process.
#include "inject/device_source.h"

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include "inject/activity_rows.h"
#include "inject/cupti/wanted_calls.h"
#include "inject/session.h"
#include "trace/cupti/activity_buffers.h"
#include "trace/cupti/decode.h"
#include "trace/cupti/device_limits.h"
#include "trace/cupti/functions.h"

namespace rooflm::inject {
namespace {

struct ChosenKind {
  std::string_view word;
  CUpti_ActivityKind kind;
};
constexpr std::array kKinds = {ChosenKind{"kernels", CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL},
                               ChosenKind{"copies", CUPTI_ACTIVITY_KIND_MEMCPY},
                               ChosenKind{"copies", CUPTI_ACTIVITY_KIND_MEMCPY2},
                               ChosenKind{"copies", CUPTI_ACTIVITY_KIND_MEMSET},
                               ChosenKind{"waits", CUPTI_ACTIVITY_KIND_SYNCHRONIZATION},
                               ChosenKind{"overhead", CUPTI_ACTIVITY_KIND_OVERHEAD},
                               ChosenKind{"memory", CUPTI_ACTIVITY_KIND_MEMORY2}};
constexpr std::array kCallKinds = {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};
/// Small ones, so that those of a busy device are full, and written, several times a second.
constexpr std::size_t kBuffers = 96;
constexpr std::size_t kBufferBytes = std::size_t{1} << 18U;

class CuptiSource;
/// CUPTI's callbacks carry nothing of ours: whose buffers it fills has to stand here.
std::atomic<CuptiSource*> active{nullptr};

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                          std::size_t valid);
std::uint64_t CUPTIAPI stamp() { return now_ns(); }
/// Of the one call that is asked for when CUPTI is to leave: only within a call is it sure that nobody else
/// is at it. Who subscribes also finds out whether somebody else did.
void CUPTIAPI leave_in_call(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId call, const void* data);

/// A function of the driver that is here.
template <class Function>
Function driver_call(const char* name) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

/// Another thread may be capturing a graph, which this thread has nothing to do with.
void wait_for_device() {
  const auto wait = driver_call<decltype(&cuCtxSynchronize)>("cuCtxSynchronize");
  const auto exchange =
      driver_call<decltype(&cuThreadExchangeStreamCaptureMode)>("cuThreadExchangeStreamCaptureMode");
  if (wait == nullptr || exchange == nullptr) return;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool is_changed = exchange(&mode) == CUDA_SUCCESS;
  wait();
  if (is_changed) exchange(&mode);
}

/// DeviceSource::choose of --calls.
std::string choice_of(const std::string& calls) {
  std::string chosen = "kernels,copies,waits,overhead,memory";
  if (calls != "none") chosen += calls == "launches" ? ",launches,driver" : ",calls,driver";
  return chosen;
}

class CuptiSource final : public DeviceSource {
 public:
  CuptiSource(const trace::CuptiFunctions& cupti, StreamWriter& writer, const std::string& calls)
      : cupti_(cupti),
        chosen_(choice_of(calls)),
        buffers_(kBuffers, kBufferBytes),
        decoder_(cupti.next_record,
                 [this](CUpti_CallbackDomain domain, std::uint32_t call) { return name_of(domain, call); }),
        rows_(writer),
        writer_(writer) {}

  bool attach(std::string& why) {
    CUptiResult result = cupti_.subscribe(&subscriber_, leave_in_call, this);
    if (result == CUPTI_SUCCESS) result = cupti_.register_timestamp(stamp);
    if (result == CUPTI_SUCCESS) {
      active.store(this);
      result = cupti_.register_callbacks(give_buffer, take_buffer);
    }
    if (result == CUPTI_SUCCESS) result = cupti_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    if (result != CUPTI_SUCCESS) {
      why = cupti_.words(result, "attaching");
      return false;
    }
    std::uint8_t are_zeroed = 1;
    std::size_t size = sizeof(are_zeroed);
    static_cast<void>(
        cupti_.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &are_zeroed));
    note_version();
    is_attached_ = true;
    rows_.begin_anew();
    return true;
  }

  void choose(const std::string& what) override { chosen_ = what; }

  bool start(std::string& why) override {
    const std::scoped_lock lock(use_mutex_);
    if (!is_attached_) {
      if (has_left_) wait_for_device();  // what was launched before is not of what is recorded now
      if (!attach(why)) {
        active.store(nullptr);
        return false;
      }
    }
    for (const ChosenKind& chosen : kKinds) {
      if (!wants(chosen.word)) continue;
      const CUptiResult result = cupti_.enable(chosen.kind);
      if (result == CUPTI_SUCCESS) continue;
      why = cupti_.words(result, "recording activities");
      return false;
    }
    enable_calls();
    return true;
  }

  void stop() override {
    const std::scoped_lock lock(use_mutex_);
    disable();
  }

  void leave() override {
    wait_for_device();
    const std::scoped_lock lock(use_mutex_);
    if (!is_attached_) return;
    disable();
    flush(true);
    const auto ask = driver_call<decltype(&cuDriverGetVersion)>("cuDriverGetVersion");
    if (ask == nullptr) return;
    constexpr CUpti_CallbackId kAsk = CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion;
    if (cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, kAsk) != CUPTI_SUCCESS) return;
    leaves_ = true;
    int version = 0;
    ask(&version);
    leaves_ = false;
  }

  /// At the end of a call of the driver.
  void leave_now() {
    if (!leaves_) return;
    leaves_ = false;
    if (cupti_.finalize() != CUPTI_SUCCESS) return;
    is_attached_ = false;
    has_left_ = true;
  }

  void disable() {
    if (!is_attached_) return;
    for (const ChosenKind& chosen : kKinds) {
      if (wants(chosen.word)) static_cast<void>(cupti_.disable(chosen.kind));
    }
    for (const CUpti_ActivityKind kind : kCallKinds) static_cast<void>(cupti_.disable(kind));
  }

  void collect(bool all) override {
    const std::scoped_lock lock(use_mutex_);
    if (is_attached_) flush(all);
  }

  void flush(bool all) {
    static_cast<void>(cupti_.flush_all(all ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0));
    std::size_t dropped = 0;
    if (cupti_.dropped_records(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0) {
      writer_.count_dropped(dropped);
    }
    const std::int64_t refused = buffers_.refused();
    // A buffer that was refused is at least one record.
    if (refused > refused_before_)
      writer_.count_dropped(static_cast<std::uint64_t>(refused - refused_before_));
    refused_before_ = refused;
  }

  trace::ActivityBuffers& buffers() { return buffers_; }

  /// On a thread of CUPTI's.
  void take(std::uint8_t* buffer, std::size_t valid) {
    const std::scoped_lock lock(mutex_);
    if (!knows_devices_) {
      knows_devices_ = true;
      Session::end_at_exit();  // the driver has long begun
      note_devices();
    }
    decoder_.add(buffer, valid);
    rows_.add(decoder_.take());
    buffers_.release(buffer);
  }

 private:
  const char* name_of(CUpti_CallbackDomain domain, std::uint32_t call) const {
    const char* name = nullptr;
    return cupti_.callback_name(domain, call, &name) == CUPTI_SUCCESS ? name : nullptr;
  }

  [[nodiscard]] bool wants(std::string_view word) const {
    const std::string all = "," + chosen_ + ",";
    return all.find("," + std::string(word) + ",") != std::string::npos;
  }

  /// All of their kind first, then not those that nobody wants: enabling single calls without their kind, as
  /// the headers propose, gives no records (CUPTI 13.0), and a call's own choice is forgotten whenever their
  /// kind is enabled.
  void enable_calls() const {
    if (!wants("calls") && !wants("launches")) return;
    static_cast<void>(cupti_.enable(CUPTI_ACTIVITY_KIND_RUNTIME));
    leave_out(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE, cupti_.enable_runtime);
    if (!wants("driver")) return;
    static_cast<void>(cupti_.enable(CUPTI_ACTIVITY_KIND_DRIVER));
    leave_out(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE, cupti_.enable_driver);
  }

  template <class Enable>
  void leave_out(CUpti_CallbackDomain domain, int count, Enable enable) const {
    const bool all = wants("calls");
    for (int call = 1; call < count; ++call) {
      const char* name = name_of(domain, static_cast<std::uint32_t>(call));
      const std::string_view plain = name == nullptr ? "" : plain_name(name);
      const bool is_wanted = all ? matters(plain) : starts_work(plain);
      if (!is_wanted) static_cast<void>(enable(static_cast<CUpti_CallbackId>(call), 0));
    }
  }

  void note_devices() {
    std::vector<trace::DeviceLimits> devices = trace::query_limits();
    for (const trace::DeviceLimits& device : devices)
      if (!device.name.empty()) writer_.fact("device cuda:" + std::to_string(device.device), device.name);
    rows_.set_devices(std::move(devices));
  }

  void note_version() {
    std::uint32_t number = 0;
    if (cupti_.version(&number) == CUPTI_SUCCESS) writer_.fact("cupti", std::to_string(number));
  }

  trace::CuptiFunctions cupti_;
  std::string chosen_;
  trace::ActivityBuffers buffers_;
  std::mutex use_mutex_;  ///< of what follows: CUPTI must not leave while somebody asks it
  bool is_attached_ = false, has_left_ = false, leaves_ = false;
  std::mutex mutex_;  ///< of what follows
  trace::ActivityDecoder decoder_;
  ActivityRows rows_;
  bool knows_devices_ = false;
  StreamWriter& writer_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::int64_t refused_before_ = 0;
};

void CUPTIAPI leave_in_call(void* user, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*call*/,
                            const void* data) {
  const bool is_end = static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_EXIT;
  if (is_end) static_cast<CuptiSource*>(user)->leave_now();
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  CuptiSource* source = active.load();
  *buffer = source == nullptr ? nullptr : source->buffers().request();
  *bytes = *buffer == nullptr ? 0 : source->buffers().bytes();
  *most_records = 0;  // as many as there is room for
}

void CUPTIAPI take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                          std::size_t /*bytes*/, std::size_t valid) {
  CuptiSource* source = active.load();
  if (source == nullptr || buffer == nullptr) return;
  try {
    source->take(buffer, valid);
  } catch (...) {  // no memory: what the buffer held is lost, the program goes on
  }
}

}  // namespace

std::unique_ptr<DeviceSource> open_device_source(StreamWriter& writer, const std::string& calls,
                                                 std::string& why) {
  trace::CuptiFunctions cupti;
  if (!cupti.load(why)) return nullptr;
  return std::make_unique<CuptiSource>(cupti, writer, calls);
}

}  // namespace rooflm::inject
