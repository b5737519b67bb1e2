// The configuration of a run: one table of fields, which options, studies, records, compare and the page
// read.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rooflm::record {

enum class FieldType : std::uint8_t { text, integer, number, flag };

/// One field. To add an option that belongs to a run is to add a row to the table in config.cpp and to act on
/// it.
struct Field {
  std::string_view key;    ///< in records, JSON and CSV: "grad_accum"
  std::string_view title;  ///< in tables and on the page: "micro-batches"
  FieldType type = FieldType::integer;
  std::string_view unit{};    ///< "" for counts and names
  bool decides = true;        ///< runs that differ here are of different configurations
  std::string_view option{};  ///< "--grad-accum"; "" for a field that follows from others
  std::string_view group{};   ///< of the option in --help: "Model", "Run", "Measuring"
  std::string_view values{};  ///< what may be typed: "N", "eager|fused"
  std::string_view
      initial{};            ///< the value when the option is not given; "" when it follows from other fields
  std::string_view help{};  ///< one line
};

/// In the order in which tables and pages show them.
std::span<const Field> config_fields();
/// nullptr for a key that the table does not have: fields of another version or of a foreign program.
const Field* find_field(std::string_view key);

/// A run's configuration: values by key, those of the table in its order, then others in the order of `set`.
/// A program that is not ours may have none.
class Config {
 public:
  using Value = std::variant<std::string, std::int64_t, double, bool>;
  using Entry = std::pair<std::string, Value>;

  /// Adds or replaces.
  void set(std::string_view key, Value value);
  void set(std::string_view key, const char* text) { set(key, Value(std::string(text))); }
  void set(std::string_view key, const std::string& text) { set(key, Value(text)); }
  void set(std::string_view key, std::string_view text) { set(key, Value(std::string(text))); }
  /// A template, so that a flag or a number does not become an integer.
  template <std::integral T>
  requires(!std::same_as<T, bool>) void set(std::string_view key, T value) {
    set(key, Value(static_cast<std::int64_t>(value)));
  }

  /// nullptr when absent.
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// The value as people read it ("fp32", "12", "yes"); "" when absent.
  [[nodiscard]] std::string text(std::string_view key) const;
  /// Of an integer or a flag; nothing when absent or of another type.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  /// Of an integer or a number.
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const;
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  bool operator==(const Config&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// "12", "0.5", "yes", "fp32": the shortest text that says the value.
std::string format_value(const Config::Value& value);

/// The value of a field as people read it; its initial value when the configuration does not have it.
std::string text_or_initial(const Config& config, const Field& field);

/// Equal for runs of one configuration: every deciding field with its value. Absent fields count as their
/// initial value, so that records from before a field existed match those after it.
std::string identity_of(const Config& config);

}  // namespace rooflm::record
