// Sampled stacks as places; a place is a frame and its caller's place.
#include "record/stack_places.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace rooflm::record {

std::int64_t StackPlaces::place_of(std::string_view stack) {
  std::int64_t caller = 0;
  while (!stack.empty()) {
    const std::size_t end = std::min(stack.find(';'), stack.size());
    const std::int64_t frame = frame_of(stack.substr(0, end));
    stack.remove_prefix(std::min(stack.size(), end + 1));
    const auto [entry, is_new] =
        places_.try_emplace({caller, frame}, static_cast<std::int64_t>(places_.size() + 1));
    if (is_new) add_place_(entry->second, caller, frame);
    caller = entry->second;
  }
  return caller;
}

std::int64_t StackPlaces::frame_of(std::string_view text) {
  const auto [entry, is_new] =
      frames_.try_emplace(std::string(text), static_cast<std::int64_t>(frames_.size() + 1));
  if (is_new) add_frame_(entry->second, text);
  return entry->second;
}

std::string StackTexts::text_of(std::string_view name) const {
  std::int64_t place = 0;
  std::from_chars(name.data(), name.data() + name.size(), place);
  constexpr std::size_t kMostFrames = 512;  // per stack; writers use fewer
  std::vector<const std::string*> frames;
  for (auto found = places_.find(place); found != places_.end(); found = places_.find(place)) {
    const auto [caller, frame] = found->second;
    const auto text = frames_.find(frame);
    if (text != frames_.end()) frames.push_back(&text->second);
    if (caller >= place || frames.size() == kMostFrames) break;
    place = caller;
  }
  std::string stack;
  std::ranges::reverse(frames);
  for (const std::string* frame : frames) stack += (stack.empty() ? "" : ";") + *frame;
  return stack.empty() ? "[unknown]" : stack;
}

}  // namespace rooflm::record
