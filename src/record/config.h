// The configuration of a run: one table of fields, shared by options, studies, records, compare and the page.
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

#include "core/variant.h"

namespace rooflm::record {

enum class FieldType : std::uint8_t { text, integer, number, flag };

/// One field. To add an option of a run, add a row to the table in config.cpp and act on it.
struct Field {
  std::string_view key;    ///< in records, JSON and CSV: "grad_accum"
  std::string_view title;  ///< in tables and on the page: "micro-batches"
  FieldType type = FieldType::integer;
  std::string_view unit{};    ///< "" for counts and names
  bool decides = true;        ///< runs that differ in it are different configurations
  std::string_view option{};  ///< "--grad-accum"; "" for a field derived from others
  std::string_view group{};   ///< its option's group in --help: "Model", "Run", "Measuring"
  std::string_view values{};  ///< accepted values: "N", "eager|fused"
  std::string_view
      initial{};            ///< the value when the option is not given; "" when it follows from other fields
  std::string_view help{};  ///< one line
};

/// In the order of tables and pages.
std::span<const Field> config_fields();
/// nullptr if the table lacks the key: a field of another version or of a foreign program.
const Field* find_field(std::string_view key);

/// The field with that option, "--grad-accum"; nullptr if there is none.
const Field* find_option(std::string_view option);

/// A run's configuration: values by key; first the table's fields in its order, then others in the order of
/// `set`. May be empty for a foreign program.
class Config {
 public:
  using Value = core::Variant<std::string, std::int64_t, double, bool>;
  using Entry = std::pair<std::string, Value>;

  /// Adds or replaces.
  void set(std::string_view key, Value value);
  void set(std::string_view key, const char* text) { set(key, Value(std::string(text))); }
  void set(std::string_view key, const std::string& text) { set(key, Value(text)); }
  void set(std::string_view key, std::string_view text) { set(key, Value(std::string(text))); }
  /// A template, so that a flag or a real number does not convert to an integer.
  template <std::integral T>
  requires(!std::same_as<T, bool>) void set(std::string_view key, T value) {
    set(key, Value(static_cast<std::int64_t>(value)));
  }

  /// nullptr when absent.
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// The value as text ("fp32", "12", "yes"); "" if absent.
  [[nodiscard]] std::string text(std::string_view key) const;
  /// An integer or a flag; nothing if absent or of another type.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  /// An integer or a real number; nothing if absent or of another type.
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const;
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  bool operator==(const Config&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// "12", "0.5", "yes", "fp32": the shortest text that represents the value.
std::string format_value(const Config::Value& value);

/// The text of a field's value; its initial value if the configuration lacks it.
std::string text_or_initial(const Config& config, const Field& field);

/// Equal for runs of the same configuration: every deciding field with its value. Absent fields count as
/// their initial value, so records from before a field existed match later ones.
std::string identity_of(const Config& config);

}  // namespace rooflm::record
