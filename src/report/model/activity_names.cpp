// Kinds and names of activities by number.
#include "report/model/activity_names.h"

namespace rooflm::report {

namespace {
const std::string kNoName;
}  // namespace

ActivityNames::ActivityNames(const RunData& run) {
  for (const record::ActivityName& name : run.activity_names) names_[name.name] = &name;
}

const std::string& ActivityNames::kind(const record::Activity& activity) const {
  const auto found = names_.find(activity.name);
  return found == names_.end() ? kNoName : found->second->kind;
}

const std::string& ActivityNames::text(const record::Activity& activity) const {
  const auto found = names_.find(activity.name);
  return found == names_.end() ? kNoName : found->second->text;
}

}  // namespace rooflm::report
