// Validates token ids.
#include "backends/cuda/id_guard.h"

#include <algorithm>
#include <cstddef>

#include "backends/cuda/context.h"
#include "backends/token_ids.h"
#include "core/error.h"

namespace rooflm::backends::cuda {

std::shared_ptr<CheckedIds> IdGuard::add(const CheckedIds& ids) {
  all_.erase(std::remove_if(all_.begin(), all_.end(), [](const auto& kept) { return kept.expired(); }),
             all_.end());
  auto checked = std::make_shared<CheckedIds>(ids);
  all_.push_back(checked);
  return checked;
}

void IdGuard::verify(const Context& context) {
  if (flag_[0] == 0) return;
  flag_[0] = 0;
  for (const auto& entry : all_) {
    const auto checked = entry.lock();
    if (checked == nullptr || checked->ids == nullptr) continue;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(checked->count));
    context.copy_out(ids.data(), checked->ids, ids.size() * sizeof(std::int32_t));
    check_ids(ids.data(), checked->count, checked->limit, checked->what, checked->negative_is_ignored);
  }
  throw core::InputError("a token or target of the batch is not in the vocabulary");
}

}  // namespace rooflm::backends::cuda
