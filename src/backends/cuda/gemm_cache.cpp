// Algorithms of products that a search found, kept between runs.
#include "backends/cuda/gemm_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "core/cache_file.h"
#include "core/file.h"

namespace rooflm::backends::cuda {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::uint64_t>;

}  // namespace

GemmCache::GemmCache(const fs::path& folder, const std::string& gpu) {
  if (folder.empty()) return;
  file_ =
      folder / fmt::format("products-{}-cublaslt-{}.json", core::file_name_part(gpu), cublasLtGetVersion());
  found_ = read();
}

GemmCache::Found GemmCache::read() const {
  std::error_code ignored;
  Found found;
  if (!fs::exists(file_, ignored)) return found;
  try {
    const core::MappedFile mapped(file_);
    const Json json = Json::parse(mapped.text());
    for (const auto& [product, value] : json.items()) {
      const auto words = value.get<Words>();
      cublasLtMatmulAlgo_t algorithm{};
      if (words.size() != std::size(algorithm.data)) continue;
      std::copy(words.begin(), words.end(), std::begin(algorithm.data));
      found.emplace(product, algorithm);
    }
  } catch (const std::exception&) {
    found.clear();
  }
  return found;
}

std::optional<cublasLtMatmulAlgo_t> GemmCache::find(const std::string& product) const {
  const auto found = found_.find(product);
  if (found == found_.end()) return std::nullopt;
  return found->second;
}

void GemmCache::add(const std::string& product, const cublasLtMatmulAlgo_t& algorithm) {
  if (file_.empty()) return;
  found_ = read();
  found_.insert_or_assign(product, algorithm);
  Json json = Json::object();
  for (const auto& [name, kept] : found_) json[name] = Words(std::begin(kept.data), std::end(kept.data));
  try {
    fs::create_directories(file_.parent_path());
    core::write_file_atomically(file_, json.dump(1) + "\n");
  } catch (const std::exception&) {  // nothing is lost but time
  }
}

}  // namespace rooflm::backends::cuda
