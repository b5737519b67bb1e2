// Sampled stacks as places; a place is a frame and its caller's place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace rooflm::record {

/// Numbers the stacks of one run for writing.
class StackPlaces {
 public:
  /// `add_frame(frame, text)` and `add_place(place, caller, frame)` are called for new ones, callers first.
  /// Numbers start at 1.
  StackPlaces(std::function<void(std::int64_t, std::string_view)> add_frame,
              std::function<void(std::int64_t, std::int64_t, std::int64_t)> add_place)
      : add_frame_(std::move(add_frame)), add_place_(std::move(add_place)) {}

  /// The place of the innermost frame of "outermost;..;innermost"; 0 for "".
  std::int64_t place_of(std::string_view stack);

 private:
  std::int64_t frame_of(std::string_view text);

  std::function<void(std::int64_t, std::string_view)> add_frame_;
  std::function<void(std::int64_t, std::int64_t, std::int64_t)> add_place_;
  std::unordered_map<std::string, std::int64_t> frames_{};
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> places_{};  ///< by caller and frame
};

/// The stacks of one run, read back.
class StackTexts {
 public:
  void add_frame(std::int64_t frame, std::string text) { frames_[frame] = std::move(text); }
  void add_place(std::int64_t place, std::int64_t caller, std::int64_t frame) {
    places_[place] = {caller, frame};
  }
  /// Whether there are no places: then names are already texts (records before schema 4).
  [[nodiscard]] bool is_empty() const { return places_.empty(); }
  /// "outermost;..;innermost" of a name that is a place number; "[unknown]" if there is no such place.
  /// Ignores callers that do not precede their callees.
  [[nodiscard]] std::string text_of(std::string_view name) const;

 private:
  std::unordered_map<std::int64_t, std::string> frames_{};
  std::unordered_map<std::int64_t, std::pair<std::int64_t, std::int64_t>> places_{};  ///< caller, frame
};

}  // namespace rooflm::record
