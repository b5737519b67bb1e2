// The autotune cache: matmul algorithms that earlier runs found.
#include "backends/cuda/gemm_cache.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/cache_file.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/system/descriptor.h"

namespace rooflm::backends::cuda {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::uint64_t>;

/// Key of a text: the GPU and library that the algorithms belong to.
constexpr const char* kLibrary = "library";

/// Parses the JSON of files and texts: matmul key -> algorithm. Throws if an entry is invalid.
std::map<std::string, cublasLtMatmulAlgo_t> parse(std::string_view text) {
  std::map<std::string, cublasLtMatmulAlgo_t> found;
  const Json json = core::parse_json_object(text, "autotune cache", "the text");
  for (const auto& [matmul, value] : json.items()) {
    if (matmul == kLibrary) continue;
    const auto words = value.get<Words>();
    cublasLtMatmulAlgo_t algorithm{};
    if (words.size() != std::size(algorithm.data)) {
      throw core::InputError(fmt::format("autotune cache: {} has {} words", matmul, words.size()));
    }
    std::copy(words.begin(), words.end(), std::begin(algorithm.data));
    found.emplace(matmul, algorithm);
  }
  return found;
}

/// Holds the lock of a folder while it exists, so that reading and replacing a file in it is one action among
/// processes. Holds nothing if the folder cannot be opened.
core::Descriptor locked(const fs::path& folder) {
  core::Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) core::lock(descriptor.get(), true);
  return descriptor;
}

Json to_json(const std::map<std::string, cublasLtMatmulAlgo_t>& found) {
  Json json = Json::object();
  for (const auto& [name, kept] : found) json[name] = Words(std::begin(kept.data), std::end(kept.data));
  return json;
}

}  // namespace

GemmCache::GemmCache(const fs::path& folder, const std::string& gpu, const std::string& choices)
    : name_(fmt::format("{}-cublaslt-{}", core::file_name_part(gpu), cublasLtGetVersion())) {
  if (!folder.empty()) file_ = folder / fmt::format("products-{}.json", name_);
  bool is_damaged = false;
  found_ = read(is_damaged);
  if (is_damaged) damaged_ = file_;
  if (choices.empty()) return;
  try {
    const Json json = core::parse_json_object(choices, "autotune cache", "the text");
    if (json.value(kLibrary, "") == name_) chosen_ = parse(choices);
  } catch (const std::exception&) {  // ignored, like a missing file
    chosen_.clear();
  }
}

GemmCache::Found GemmCache::read(bool& is_damaged) const {
  std::error_code ignored;
  if (file_.empty() || !fs::exists(file_, ignored)) return {};
  try {
    const core::MappedFile mapped(file_);
    return parse(mapped.text());
  } catch (const std::exception&) {
    is_damaged = true;
    return {};
  }
}

std::optional<cublasLtMatmulAlgo_t> GemmCache::find(const std::string& matmul, bool use_file) const {
  if (const auto chosen = chosen_.find(matmul); chosen != chosen_.end()) return chosen->second;
  const auto kept = found_.find(matmul);
  if (!use_file || kept == found_.end()) return std::nullopt;
  return kept->second;
}

cublasLtMatmulAlgo_t GemmCache::add(const std::string& matmul, const cublasLtMatmulAlgo_t& algorithm) {
  if (file_.empty()) return algorithm;
  std::error_code unwritable;  // then only time is lost
  fs::create_directories(file_.parent_path(), unwritable);
  const core::Descriptor folder = locked(file_.parent_path());
  bool ignored = false;
  found_ = read(ignored);
  const auto [kept, is_new] = found_.emplace(matmul, algorithm);
  if (!is_new) return kept->second;
  try {
    core::write_file_atomically(file_, to_json(found_).dump(1) + "\n");
  } catch (const std::exception&) {  // only time is lost
  }
  return algorithm;
}

void GemmCache::use(const std::string& matmul, const cublasLtMatmulAlgo_t& algorithm) {
  used_.insert_or_assign(matmul, algorithm);
}

std::string GemmCache::text() const {
  if (used_.empty()) return {};
  Json json = to_json(used_);
  json[kLibrary] = name_;
  return json.dump();
}

}  // namespace rooflm::backends::cuda
