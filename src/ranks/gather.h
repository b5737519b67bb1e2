// What each rank of a group has, for all of them.
#pragma once

#include <span>
#include <vector>

#include "ranks/transport.h"

namespace rooflm::ranks {

/// The values of `members`, in their order. All of them call it, this rank is one of them, and T is the same
/// bytes on all.
template <class T>
std::vector<T> gather(Transport& transport, Tag tag, std::span<const int> members, const T& own) {
  std::vector<T> all(members.size(), own);
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == transport.rank()) continue;
    out.push_back({members[i], std::as_bytes(std::span(&own, 1))});
    in.push_back({members[i], std::as_writable_bytes(std::span(&all[i], 1))});
  }
  transport.exchange(tag, out, in);
  return all;
}

}  // namespace rooflm::ranks
