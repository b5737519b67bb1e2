// A place in a model, written as a path: "h.3/attention/qk", "lm_head".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rooflm::core {

/// Parses a scope; borrows its text. Inside a layer the first step of the path is "h." and the layer's
/// number. A block is the first step after that, or the first step of a path outside layers.
class Scope {
 public:
  explicit Scope(std::string_view text);

  [[nodiscard]] std::string_view text() const { return text_; }
  /// 3 of "h.3/attention/qk"; nothing outside layers.
  [[nodiscard]] std::optional<std::int64_t> layer() const { return layer_; }
  /// "attention/qk" of "h.3/attention/qk"; "layer" of "h.3"; the whole path outside layers.
  [[nodiscard]] std::string_view part() const { return part_; }
  /// "attention" of "h.3/attention/qk"; "ln_f" of "ln_f".
  [[nodiscard]] std::string_view block() const { return part_.substr(0, part_.find('/')); }
  /// "h.*/attention/qk" of "h.3/attention/qk": equal for all layers.
  [[nodiscard]] std::string any_layer() const;

 private:
  std::string_view text_, part_;
  std::optional<std::int64_t> layer_;
};

}  // namespace rooflm::core
