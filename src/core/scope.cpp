// A place in a model, written as a path.
#include "core/scope.h"

#include <charconv>

namespace rooflm::core {

Scope::Scope(std::string_view text) : text_(text), part_(text) {
  constexpr std::string_view kLayers = "h.";
  if (!text.starts_with(kLayers)) return;
  const std::string_view step = text.substr(0, text.find('/'));
  const std::string_view digits = step.substr(kLayers.size());
  std::int64_t number = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, number);
  if (error != std::errc() || end != last) return;
  layer_ = number;
  part_ = step.size() == text.size() ? std::string_view("layer") : text.substr(step.size() + 1);
}

std::string Scope::any_layer() const {
  if (!layer_) return std::string(text_);
  const auto rest = text_.find('/');
  return "h.*" + std::string(rest == std::string_view::npos ? std::string_view() : text_.substr(rest));
}

}  // namespace rooflm::core
