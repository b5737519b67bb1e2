// Parts that language models have whoever wrote them.
#include "report/model/common_parts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

#include "core/scope.h"

namespace rooflm::report {
namespace {

constexpr const char* kNormPart = "norms_and_residuals";
constexpr const char* kHeadPart = "head_and_loss";

struct PartWord {
  std::string_view part_of_name;
  const char* part;
};
/// The first one that a name holds counts: "attention_norm" is a norm.
constexpr auto kPartWords = std::to_array<PartWord>({{"norm", kNormPart},
                                                     {"rms", kNormPart},
                                                     {"residual", kNormPart},
                                                     {"embed", "embedding"},
                                                     {"wte", "embedding"},
                                                     {"wpe", "embedding"},
                                                     {"attn", "attention"},
                                                     {"attention", "attention"},
                                                     {"mlp", "feed_forward"},
                                                     {"ffn", "feed_forward"},
                                                     {"feed_forward", "feed_forward"},
                                                     {"feedforward", "feed_forward"},
                                                     {"moe", "feed_forward"},
                                                     {"expert", "feed_forward"},
                                                     {"head", kHeadPart},
                                                     {"loss", kHeadPart},
                                                     {"entropy", kHeadPart}});

std::string lower_text(std::string_view text) {
  std::string small;
  for (const char c : text) small += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

const char* part_of_name(const std::string& name) {
  if (name.starts_with("ln")) return kNormPart;
  const auto found = std::ranges::find_if(
      kPartWords, [&](const PartWord& word) { return name.find(word.part_of_name) != std::string::npos; });
  return found == kPartWords.end() ? nullptr : found->part;
}

/// Blocks of layers and others of the same name are different ones.
std::string key_of(const core::Scope& scope) {
  return (scope.layer() ? "h/" : "") + std::string(scope.block());
}

}  // namespace

std::map<std::int64_t, std::string> common_parts(std::span<const record::Op> ops) {
  // Of each block the class of its module, where that has kernels of its own.
  std::map<std::string, std::string> classes;
  for (const record::Op& op : ops) {
    const core::Scope scope(op.scope);
    if (scope.part() == scope.block()) classes.emplace(key_of(scope), lower_text(op.kind));
  }
  std::map<std::int64_t, std::string> parts;
  for (const record::Op& op : ops) {
    const core::Scope scope(op.scope);
    const char* part = part_of_name(lower_text(scope.block()));
    if (part == nullptr) {
      const auto known = classes.find(key_of(scope));
      if (known != classes.end()) part = part_of_name(known->second);
    }
    if (part == nullptr && !scope.layer()) part = kHeadPart;
    if (part == nullptr && scope.block() == "itself") part = kNormPart;
    parts[op.op] = op.phase == "optimizer" ? "optimizer" : part == nullptr ? "other" : part;
  }
  return parts;
}

}  // namespace rooflm::report
