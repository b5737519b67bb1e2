// Ranges of NVTX: the functions that programs call when NVTX_INJECTION64_PATH names this library.
#include "inject/nvtx.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "inject/ranges.h"
#include "inject/session.h"

namespace rooflm::inject {
namespace {

using nvtx::Event;

struct Domain {
  std::string prefix{};  ///< "NCCL:"
};

/// Of texts that have another form than bytes: everything beyond ASCII becomes a question mark.
std::string narrow(const wchar_t* text) {
  std::string bytes;
  for (; text != nullptr && *text != L'\0'; ++text) bytes += *text < 128 ? static_cast<char>(*text) : '?';
  return bytes;
}

struct Named {
  std::uint32_t number = 0, extra = 0;
};

/// The number of a range's name, as records have it: of a domain with its name before it. Shows it to the
/// session where that wants to see ranges begin.
std::uint32_t number_of(Session& session, const Domain* domain, std::string_view name, bool is_push) {
  const bool is_plain = domain == nullptr || domain->prefix.empty();
  const std::uint32_t number =
      session.writer().text(is_plain ? std::string(name) : domain->prefix + std::string(name));
  if (is_push && session.is_watching()) session.see_push(number, name);
  return number;
}

/// What NCCL says of a collective or a message: the communicator's number (from 2.26 on) and bytes come
/// first.
std::string nccl_text(const Event& event) {
  // Of NCCL's schemas: those of functions that move data, and of them those with nothing but that.
  constexpr std::uint64_t kFirst = nvtx::kFirstOwnSchema + 4;
  constexpr std::uint64_t kLast = nvtx::kFirstOwnSchema + 18;
  constexpr std::uint64_t kAllGather = kFirst;
  constexpr std::uint64_t kAllToAll = nvtx::kFirstOwnSchema + 16;
  constexpr std::uint64_t kInitConfig = nvtx::kFirstOwnSchema + 11;
  constexpr std::uint64_t kShrink = nvtx::kFirstOwnSchema + 15;
  const auto* payload = reinterpret_cast<const nvtx::ExtendedPayload*>(event.payload.whole);
  if (payload == nullptr || payload->data == nullptr || event.reserved != 1) return "";
  const std::uint64_t schema = payload->schema;
  const bool is_of_data = schema >= kFirst && schema <= kLast && (schema < kInitConfig || schema > kShrink);
  constexpr std::size_t kMostBytes = 64;  // of any of them; a size that is not said has no end
  if (!is_of_data || payload->bytes > kMostBytes) return "";
  const std::size_t others = schema == kAllGather || schema == kAllToAll ? 0 : sizeof(std::uint64_t);
  std::array<std::uint64_t, 2> words{};  // communicator, bytes
  const bool has_communicator = payload->bytes >= sizeof(words) + others;
  const std::size_t size = has_communicator ? sizeof(words) : sizeof(std::uint64_t);
  if (payload->bytes < size) return "";
  std::memcpy(words.data() + (has_communicator ? 0 : 1), payload->data, size);
  std::array<char, 80> text{};
  const auto print = [&](const char* form, auto... values) {
    std::snprintf(text.data(), text.size(), form, static_cast<unsigned long long>(values)...);
  };
  if (has_communicator) {
    print(R"({"bytes":%llu,"communicator":"%llx"})", words[1], words[0]);
  } else {
    print(R"({"bytes":%llu})", words[1]);
  }
  return text.data();
}

std::string payload_text(const Event& event) {
  std::array<char, 64> text{};
  const auto write = [&](const char* form, auto value) {
    std::snprintf(text.data(), text.size(), form, value);
    return std::string(text.data());
  };
  constexpr const char* kSigned = R"({"payload":%lld})";
  constexpr const char* kUnsigned = R"({"payload":%llu})";
  constexpr const char* kNumber = R"({"payload":%.9g})";
  switch (event.payload_type) {
    case nvtx::kUint64:
      return write(kUnsigned, static_cast<unsigned long long>(event.payload.whole));
    case nvtx::kInt64:
      return write(kSigned, static_cast<long long>(event.payload.signed_whole));
    case nvtx::kUint32:
      return write(kUnsigned, static_cast<unsigned long long>(event.payload.half));
    case nvtx::kInt32:
      return write(kSigned, static_cast<long long>(event.payload.signed_half));
    case nvtx::kDouble:
      return event.payload.number - event.payload.number == 0 ? write(kNumber, event.payload.number) : "";
    case nvtx::kFloat: {
      const double number = event.payload.small_number;
      return number - number == 0 ? write(kNumber, number) : "";
    }
    default:
      return "";
  }
}

Named name_of(Session& session, const Domain* domain, const Event* event, bool is_push) {
  // Programs that were built with an older header have fewer members.
  if (event == nullptr || event->size < offsetof(Event, message) + sizeof(event->message)) {
    return {.number = number_of(session, domain, "range", is_push)};
  }
  Named named;
  if (event->message_type == nvtx::kNarrow && event->message.narrow != nullptr) {
    named.number = number_of(session, domain, event->message.narrow, is_push);
  } else if (event->message_type == nvtx::kWide) {
    named.number = number_of(session, domain, narrow(event->message.wide), is_push);
  } else if (event->message_type == nvtx::kRegistered && event->message.registered != nullptr) {
    const auto* text = static_cast<const std::string*>(event->message.registered);
    named.number = number_of(session, domain, *text, is_push);
  } else {
    named.number = number_of(session, domain, "range", is_push);
  }
  const bool is_nccl =
      event->payload_type == nvtx::kExtended && domain != nullptr && domain->prefix == "NCCL:";
  const std::string payload = is_nccl ? nccl_text(*event) : payload_text(*event);
  if (!payload.empty()) named.extra = session.writer().text(payload);
  return named;
}

int push(const Domain* domain, std::string_view text) {
  Session* session = Session::current();
  const std::uint32_t name = session == nullptr ? 0 : number_of(*session, domain, text, true);
  return push_range(domain, name, RangeKind::user, 0, true);
}

int push(const Domain* domain, const Event* event) {
  Session* session = Session::current();
  const Named named = session == nullptr ? Named{} : name_of(*session, domain, event, true);
  return push_range(domain, named.number, RangeKind::user, named.extra, true);
}

void closed(std::uint32_t name) {
  Session* session = Session::current();
  if (session != nullptr && session->is_watching()) session->see_pop(name);
}

int pop(const Domain* domain) {
  closed(pop_range(domain));
  return 0;
}

std::uint64_t start(const Domain* domain, std::string_view text) {
  Session* session = Session::current();
  return start_range(session == nullptr ? 0 : number_of(*session, domain, text, true), 0);
}

std::uint64_t start(const Domain* domain, const Event* event) {
  Session* session = Session::current();
  const Named named = session == nullptr ? Named{} : name_of(*session, domain, event, true);
  return start_range(named.number, named.extra);
}

void mark(const Domain* domain, const Event* event) {
  Session* session = Session::current();
  if (session == nullptr) return;
  const Named named = name_of(*session, domain, event, false);
  add_mark(named.number, RangeKind::user, named.extra);
}

void mark(std::string_view text) {
  if (Session* session = Session::current()) add_mark(session->writer().text(text), RangeKind::user);
}

std::string_view shown(const char* text) { return text == nullptr ? "range" : text; }

// The functions themselves, as programs call them.
void mark_event(const Event* event) { mark(nullptr, event); }
void mark_narrow(const char* text) { mark(shown(text)); }
void mark_wide(const wchar_t* text) { mark(narrow(text)); }
std::uint64_t start_event(const Event* event) { return start(nullptr, event); }
std::uint64_t start_narrow(const char* text) { return start(nullptr, shown(text)); }
std::uint64_t start_wide(const wchar_t* text) { return start(nullptr, narrow(text)); }
void end_started(std::uint64_t number) { closed(end_range(number)); }
int push_event(const Event* event) { return push(nullptr, event); }
int push_narrow(const char* text) { return push(nullptr, shown(text)); }
int push_wide(const wchar_t* text) { return push(nullptr, narrow(text)); }
int pop_default() { return pop(nullptr); }
void name_thread(std::uint32_t thread, const char* name) {
  Session* session = Session::current();
  if (session != nullptr && name != nullptr) session->writer().fact("thread " + std::to_string(thread), name);
}
std::uint64_t domain_start(const Domain* domain, const Event* event) { return start(domain, event); }
void domain_end(const Domain* /*domain*/, std::uint64_t number) { end_started(number); }
int domain_push(const Domain* domain, const Event* event) { return push(domain, event); }
void domain_mark(const Domain* domain, const Event* event) { mark(domain, event); }
/// Texts and domains live as long as the process, beyond its statics: a program may name them at any time.
template <class Kept>
const Kept* keep(Kept kept) {
  static std::mutex mutex;
  static auto* const all = new std::deque<Kept>();
  const std::scoped_lock lock(mutex);
  return &all->emplace_back(std::move(kept));
}
const void* keep_text(const Domain* /*domain*/, const char* text) { return keep(std::string(shown(text))); }
const void* keep_wide_text(const Domain* /*domain*/, const wchar_t* text) { return keep(narrow(text)); }
const Domain* make_domain(const char* name) { return keep(Domain{std::string(shown(name)) + ":"}); }
const Domain* make_wide_domain(const wchar_t* name) { return keep(Domain{narrow(name) + ":"}); }
void forget_domain(const Domain* /*domain*/) {}

template <class Call>
void set(nvtx::FunctionTable table, unsigned size, unsigned place, Call* call) {
  if (place < size && table[place] != nullptr) *table[place] = reinterpret_cast<nvtx::Function>(call);
}

void fill_core(nvtx::FunctionTable table, unsigned size) {
  set(table, size, nvtx::kMarkEx, mark_event);
  set(table, size, nvtx::kMarkA, mark_narrow);
  set(table, size, nvtx::kMarkW, mark_wide);
  set(table, size, nvtx::kRangeStartEx, start_event);
  set(table, size, nvtx::kRangeStartA, start_narrow);
  set(table, size, nvtx::kRangeStartW, start_wide);
  set(table, size, nvtx::kRangeEnd, end_started);
  set(table, size, nvtx::kRangePushEx, push_event);
  set(table, size, nvtx::kRangePushA, push_narrow);
  set(table, size, nvtx::kRangePushW, push_wide);
  set(table, size, nvtx::kRangePop, pop_default);
  set(table, size, nvtx::kNameOsThreadA, name_thread);
}

void fill_domains(nvtx::FunctionTable table, unsigned size) {
  set(table, size, nvtx::kDomainMarkEx, domain_mark);
  set(table, size, nvtx::kDomainRangeStartEx, domain_start);
  set(table, size, nvtx::kDomainRangeEnd, domain_end);
  set(table, size, nvtx::kDomainRangePushEx, domain_push);
  set(table, size, nvtx::kDomainRangePop, pop);
  set(table, size, nvtx::kDomainRegisterStringA, keep_text);
  set(table, size, nvtx::kDomainRegisterStringW, keep_wide_text);
  set(table, size, nvtx::kDomainCreateA, make_domain);
  set(table, size, nvtx::kDomainCreateW, make_wide_domain);
  set(table, size, nvtx::kDomainDestroy, forget_domain);
}

}  // namespace

bool take_nvtx(nvtx::ExportTable export_table) {
  const auto* callbacks = static_cast<const nvtx::Callbacks*>(export_table(nvtx::kCallbacksTable));
  if (callbacks == nullptr || callbacks->bytes < sizeof(nvtx::Callbacks)) return false;
  nvtx::FunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->module_table(nvtx::kCore, &table, &size) == 0 || table == nullptr) return false;
  fill_core(table, size);
  if (callbacks->module_table(nvtx::kCore2, &table, &size) != 0 && table != nullptr)
    fill_domains(table, size);
  return true;
}

}  // namespace rooflm::inject
