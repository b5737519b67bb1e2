// Algorithms of products that a search found, kept between runs.
#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace rooflm::backends::cuda {

/// One file for each GPU model and version of cuBLASLt, whose algorithms mean nothing to another. A file that
/// is damaged, or cannot be written, is as good as none: the search takes a second per product.
class GemmCache {
 public:
  /// Reads what is kept in `folder`; with an empty one nothing is kept.
  GemmCache(const std::filesystem::path& folder, const std::string& gpu);

  /// `product` says all that an algorithm depends on.
  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> find(const std::string& product) const;
  /// Adds one to the file, which other processes may have added to meanwhile.
  void add(const std::string& product, const cublasLtMatmulAlgo_t& algorithm);

 private:
  using Found = std::map<std::string, cublasLtMatmulAlgo_t>;
  [[nodiscard]] Found read() const;
  std::filesystem::path file_;
  Found found_;
};

}  // namespace rooflm::backends::cuda
