// Traces of Kineto (torch.profiler), and Chrome traces of others: events are taken as they are read, so that
// no tree of the whole file is built.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/utf8_bytes.h"
#include "foreign/import.h"
#include "foreign/trace_events.h"

namespace rooflm::foreign {
namespace {

using nlohmann::json;

/// Microseconds as text in nanoseconds, exactly where a double would not be: "1724900000000000.125". Nothing
/// for what is no time.
std::optional<std::int64_t> nanoseconds_of(std::string_view text) {
  std::string_view digits = text;
  const bool is_negative = digits.starts_with('-');
  if (is_negative) digits.remove_prefix(1);
  std::int64_t whole = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 1000 - 1;
  if (parsed.ec != std::errc() || whole > kMost || whole < 0) return std::nullopt;
  std::int64_t ns = whole * 1000;
  std::string_view rest(parsed.ptr, static_cast<std::size_t>(digits.data() + digits.size() - parsed.ptr));
  if (rest.find_first_of("eE") != std::string_view::npos) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    constexpr double kMostNs = 4e18;
    if (!(std::abs(value) * 1000 < kMostNs)) return std::nullopt;
    return std::llround(value * 1000);
  }
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    std::int64_t unit = 100;
    for (const char c : rest.substr(0, 3)) {
      ns += unit * (c - '0');
      unit /= 10;
    }
    if (rest.size() > 3 && rest[3] >= '5') ++ns;
  }
  return is_negative ? -ns : ns;
}

/// What a value is within.
enum class Place : std::uint8_t { nothing, root, events, event, args, triple, properties, property, ranks };

/// Receives the parts of a JSON text in their order (the interface of nlohmann's SAX parser).
class EventReader {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  EventReader(const std::string& where, TraceEvents& events) : where_(where), events_(events) {}

  bool null() { return true; }
  bool boolean(bool /*value*/) { return true; }
  bool number_integer(number_integer_t value) {
    return number(static_cast<double>(value), value, fmt::format("{}", value));
  }
  bool number_unsigned(number_unsigned_t value) {
    constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    if (value > kMost) return number(static_cast<double>(value), std::nullopt, fmt::format("{}", value));
    return number_integer(static_cast<number_integer_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) {
    constexpr double kExact = 9e15;
    const bool is_whole = std::abs(value) < kExact && std::trunc(value) == value;
    return number(value, is_whole ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt, text);
  }
  bool string(string_t& text) {
    switch (place()) {
      case Place::event:
        event_.set_text(key_, text);
        break;
      case Place::args:
        event_.set_arg_text(key_, text);
        break;
      case Place::property:
        if (key_ == "name") events_.name_device(device_, text);
        break;
      default:
        break;
    }
    return true;
  }
  bool binary(binary_t& /*value*/) { return true; }
  bool key(string_t& text) {
    key_ = text;
    return true;
  }
  bool start_object(std::size_t /*size*/) {
    const Place at = place();
    if (places_.empty()) {
      enter(Place::root);
    } else if (at == Place::events) {
      event_ = {};
      enter(Place::event);
    } else if (at == Place::event && key_ == "args") {
      enter(Place::args);
    } else if (at == Place::root && key_ == "distributedInfo") {
      enter(Place::ranks);
    } else {
      if (at == Place::properties) device_ = 0;
      enter(at == Place::properties ? Place::property : Place::nothing);
    }
    return true;
  }
  bool end_object() {
    if (place() == Place::event) events_.take(event_);
    places_.pop_back();
    return true;
  }
  bool start_array(std::size_t /*size*/) {
    const Place at = place();
    if (places_.empty() || (at == Place::root && key_ == "traceEvents")) {
      has_events_ = true;
      enter(Place::events);
    } else if (at == Place::root && key_ == "deviceProperties") {
      enter(Place::properties);
    } else {
      triple_.clear();
      enter(at == Place::args && (key_ == "grid" || key_ == "block") ? Place::triple : Place::nothing);
    }
    return true;
  }
  bool end_array() {
    if (place() == Place::triple && triple_.size() == 3) {
      event_.extra +=
          fmt::format(R"({}"{}":[{}])", event_.extra.empty() ? "" : ",", key_, fmt::join(triple_, ","));
    }
    places_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    error_position = position;
    error_text = error.what();
    return false;
  }

  [[nodiscard]] bool has_events() const { return has_events_; }
  std::size_t error_position = 0;
  std::string error_text{};

 private:
  [[nodiscard]] Place place() const { return places_.empty() ? Place::nothing : places_.back(); }
  void enter(Place place) {
    if (places_.size() >= core::kMostJsonDepth) {
      throw core::InputError(
          fmt::format("{}: the trace is nested deeper than {} levels", where_, core::kMostJsonDepth));
    }
    places_.push_back(place);
  }
  bool number(double value, std::optional<std::int64_t> whole, const std::string& text) {
    switch (place()) {
      case Place::root:
        if (key_ == "baseTimeNanoseconds" && whole) events_.set_base(*whole);
        break;
      case Place::event:
        if (key_ == "ts") {
          event_.start_ns = nanoseconds_of(text);
        } else if (key_ == "dur") {
          event_.duration_ns = nanoseconds_of(text);
        } else {
          event_.set_number(key_, whole);
        }
        break;
      case Place::args:
        event_.set_arg_number(key_, value, whole);
        break;
      case Place::triple:
        if (triple_.size() < 3) triple_.push_back(whole.value_or(0));
        break;
      case Place::property:
        if (key_ == "id") device_ = whole.value_or(0);
        if (key_ == "numSms" && whole) events_.set_multiprocessors(device_, *whole);
        break;
      case Place::ranks:
        if (key_ == "rank" && whole) events_.set_rank(*whole);
        if (key_ == "world_size" && whole) events_.set_world_size(*whole);
        break;
      default:
        break;
    }
    return true;
  }

  const std::string& where_;
  TraceEvents& events_;
  std::vector<Place> places_;
  std::string key_;
  RawEvent event_;
  std::vector<std::int64_t> triple_;
  std::int64_t device_ = 0;
  bool has_events_ = false;
};

}  // namespace

void read_kineto(std::string_view text, const std::string& where, bool is_cut, ForeignRun& run) {
  TraceEvents events(run);
  auto reader = std::make_unique<EventReader>(where, events);
  bool is_whole = json::sax_parse(text, reader.get());
  if (!is_whole && reader->error_text.find("UTF-8") != std::string::npos) {
    // Once more, with the bytes that are no text as private characters.
    const std::string label = run.label;
    run = ForeignRun();
    run.label = label;
    run.say("the file holds bytes that are no UTF-8: they are kept as private characters");
    events.restart();
    reader = std::make_unique<EventReader>(where, events);
    is_whole = json::sax_parse(core::bytes_as_utf8(text), reader.get());
  }
  if (!is_whole) {
    const bool ends_early = reader->error_position >= text.size() || is_cut;
    if (!ends_early || events.size() == 0) {
      throw core::InputError(fmt::format("{}: the trace is not valid JSON at byte {} of {}{}", where,
                                         reader->error_position, text.size(),
                                         ends_early ? " (it ends before its first event)" : ""));
    }
    run.status = "interrupted";
    run.say("the file ends in the middle: the events before that are here");
  } else if (!reader->has_events()) {
    throw core::InputError(
        fmt::format("{}: the JSON has no list \"traceEvents\": it is no Chrome trace", where));
  }
  events.finish();
}

}  // namespace rooflm::foreign
