// Traces of Kineto (torch.profiler), and Chrome traces of others: events are taken as they are read, so that
// no tree of the whole file is built.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "foreign/import.h"
#include "foreign/json_repair.h"
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
enum class Place : std::uint8_t { nothing, root, events, event, args, list, properties, property, ranks };

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
      case Place::list:
        add_to_list(json(text).dump());
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
    constexpr std::size_t kSomeKeys = 6;
    if (place() == Place::root && root_keys_.size() < kSomeKeys)
      root_keys_.push_back(core::printable(text, 40));
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
    } else if ((at == Place::event || at == Place::args) && (key_ == "args" || key_ == "debug")) {
      // Perfetto writes the arguments of what it read within arguments of its own.
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
      if (at == Place::args) {
        list_.clear();
        list_key_ = key_;
      }
      const bool is_list = at == Place::args || at == Place::list;
      if (is_list) add_to_list("[");
      enter(is_list ? Place::list : Place::nothing);
    }
    return true;
  }
  bool end_array() {
    const bool is_in_list = place() == Place::list;
    if (is_in_list) list_ += "]";
    places_.pop_back();
    if (is_in_list && place() == Place::args && list_.size() <= kMostList)
      event_.set_arg_list(list_key_, list_);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    error_position = position;
    error_text = error.what();
    return false;
  }

  [[nodiscard]] bool has_events() const { return has_events_; }
  /// The first keys of the file's object, as they may be shown.
  [[nodiscard]] const std::vector<std::string>& root_keys() const { return root_keys_; }
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
  static constexpr std::size_t kMostList = 4096;
  /// What is longer is no shape.
  void add_to_list(std::string_view part) {
    if (list_.size() > kMostList) return;
    if (!list_.empty() && list_.back() != '[') list_ += ',';
    list_ += part;
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
      case Place::list:
        add_to_list(text);
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
  std::vector<std::string> root_keys_;
  std::string key_;
  RawEvent event_;
  std::string list_, list_key_;  ///< of the arguments, as JSON
  std::int64_t device_ = 0;
  bool has_events_ = false;
};

/// "line 3, column 17: invalid literal" of what the parser says about a byte of the text.
std::string place_and_cause(std::string_view text, std::size_t position, std::string_view said) {
  const std::string_view before = text.substr(0, position);
  const auto line_start = before.rfind('\n');
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ... - cause"
  const auto cause = said.find(": ");
  return fmt::format("line {}, column {}: {}", 1 + std::ranges::count(before, '\n'),
                     before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1),
                     core::printable(cause == std::string_view::npos ? said : said.substr(cause + 2)));
}

}  // namespace

void read_kineto(std::string_view text, const std::string& where, bool is_cut, ForeignRun& run) {
  auto events = std::make_unique<TraceEvents>(run, where);
  auto reader = std::make_unique<EventReader>(where, *events);
  bool is_whole = json::sax_parse(text, reader.get());
  std::size_t position = reader->error_position;
  bool ends_early = position >= text.size();
  if (!is_whole && !ends_early) {
    // Once more, from a copy without what can be read in one way only.
    const RepairedJson repaired = repair_json(text);
    if (!repaired.repairs.empty()) {
      const std::string label = run.label;
      run = ForeignRun();
      run.label = label;
      events = std::make_unique<TraceEvents>(run, where);
      reader = std::make_unique<EventReader>(where, *events);
      is_whole = json::sax_parse(repaired.text, reader.get());
      ends_early = reader->error_position >= repaired.text.size();
      position = repaired.original(reader->error_position);
      run.say(fmt::format("the file is no valid JSON: {}", fmt::join(repaired.repairs, "; ")));
    }
  }
  if (!is_whole) {
    ends_early = ends_early || is_cut;
    position = std::min(position, text.size());  // the parser counts the end as a byte
    if (!ends_early || events->size() == 0) {
      throw core::InputError(
          fmt::format("{}: the trace is not valid JSON at byte {} of {}{}", where, position, text.size(),
                      ends_early ? " (it ends before its first event)"
                                 : ", " + place_and_cause(text, position, reader->error_text)));
    }
    run.status = "interrupted";
    run.say("the file is truncated: it was read up to there");
  } else if (!reader->has_events()) {
    throw core::InputError(fmt::format(
        "{}: the JSON has no list \"traceEvents\", but {}: it is not a Chrome trace", where,
        reader->root_keys().empty() ? "nothing" : fmt::format("{}", fmt::join(reader->root_keys(), ", "))));
  }
  events->finish();
}

}  // namespace rooflm::foreign
