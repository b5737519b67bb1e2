// Stacks as places: a frame and the place that called it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace rooflm::record {

/// Numbers stacks that are to be written; of one run.
class StackPlaces {
 public:
  /// `add_frame(frame, text)` and `add_place(place, caller, frame)` are called for what is new, callers
  /// first. Numbers count from 1.
  StackPlaces(std::function<void(std::int64_t, std::string_view)> add_frame,
              std::function<void(std::int64_t, std::int64_t, std::int64_t)> add_place)
      : add_frame_(std::move(add_frame)), add_place_(std::move(add_place)) {}

  /// The place of the innermost frame of "outermost;..;innermost"; 0 of "".
  std::int64_t place_of(std::string_view stack);

 private:
  std::int64_t frame_of(std::string_view text);

  std::function<void(std::int64_t, std::string_view)> add_frame_;
  std::function<void(std::int64_t, std::int64_t, std::int64_t)> add_place_;
  std::unordered_map<std::string, std::int64_t> frames_{};
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> places_{};  ///< by caller and frame
};

/// Stacks that were read; of one run.
class StackTexts {
 public:
  void add_frame(std::int64_t frame, std::string text) { frames_[frame] = std::move(text); }
  void add_place(std::int64_t place, std::int64_t caller, std::int64_t frame) {
    places_[place] = {caller, frame};
  }
  /// Whether none was added: then names are texts already (records before schema 4).
  [[nodiscard]] bool is_empty() const { return places_.empty(); }
  /// "outermost;..;innermost" of a name that is the number of a place; "[unknown]" where it is none. Callers
  /// that do not come before what they call are not followed.
  [[nodiscard]] std::string text_of(std::string_view name) const;

 private:
  std::unordered_map<std::int64_t, std::string> frames_{};
  std::unordered_map<std::int64_t, std::pair<std::int64_t, std::int64_t>> places_{};  ///< caller, frame
};

}  // namespace rooflm::record
