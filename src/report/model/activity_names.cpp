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

bool ActivityNames::is_kernel(const record::Activity& activity) const {
  const std::string& of = kind(activity);
  return of == "kernel" || of == "collective";
}

bool ActivityNames::is_copy(const record::Activity& activity) const {
  const std::string& of = kind(activity);
  return of == "copy" || of == "memset";
}

}  // namespace rooflm::report
