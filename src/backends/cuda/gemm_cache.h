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
  /// Reads what is kept in `folder`; with an empty one nothing is kept. `choices`, a text() of an earlier
  /// process, win over the file, so that a run that goes on runs the algorithms it began with.
  GemmCache(const std::filesystem::path& folder, const std::string& gpu, const std::string& choices);

  /// The file, where it was damaged when this was made: by an entry that is no algorithm, or all of it. What
  /// is kept from then on makes it anew.
  [[nodiscard]] const std::filesystem::path& damaged() const { return damaged_; }

  /// `product` says all that an algorithm depends on. The file is asked only with `use_file`.
  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> find(const std::string& product, bool use_file) const;
  /// Keeps one in the file. The first that is kept stays: when another process was faster, its algorithm is
  /// returned, so that all processes run the same.
  [[nodiscard]] cublasLtMatmulAlgo_t add(const std::string& product, const cublasLtMatmulAlgo_t& algorithm);

  /// Remembers what a matmul runs, for text().
  void use(const std::string& product, const cublasLtMatmulAlgo_t& algorithm);
  /// All that was used, as JSON; "" for nothing. It belongs to a version of cuBLASLt and a GPU, which it
  /// names.
  [[nodiscard]] std::string text() const;

 private:
  using Found = std::map<std::string, cublasLtMatmulAlgo_t>;
  /// What the file holds; nothing, and `is_damaged`, where that cannot be told.
  [[nodiscard]] Found read(bool& is_damaged) const;
  std::string name_;  ///< GPU and version, which algorithms belong to
  std::filesystem::path file_, damaged_;
  Found found_;   ///< in the file
  Found chosen_;  ///< by an earlier process
  Found used_;
};

}  // namespace rooflm::backends::cuda
