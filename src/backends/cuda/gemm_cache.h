// The autotune cache: matmul algorithms that earlier runs found.
#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace rooflm::backends::cuda {

/// One file per GPU model and cuBLASLt version, since algorithms are specific to both. A file that is damaged
/// or cannot be written is ignored: autotuning then takes about a second per matmul.
class GemmCache {
 public:
  /// Reads the cache in `folder`; an empty path disables it. `choices`, a text() of an earlier process, takes
  /// precedence over the file, so a resumed run uses the algorithms that it began with.
  GemmCache(const std::filesystem::path& folder, const std::string& gpu, const std::string& choices);

  /// The cache file if it was damaged (an entry, or all of it) when this was made; otherwise empty. The next
  /// write replaces it.
  [[nodiscard]] const std::filesystem::path& damaged() const { return damaged_; }

  /// The algorithm for the key `matmul`, which contains everything that an algorithm depends on. The file is
  /// used only with `use_file`.
  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> find(const std::string& matmul, bool use_file) const;
  /// Adds an entry to the file and returns the algorithm to use. The first entry wins: if another process was
  /// faster, its algorithm is returned, so all processes use the same one.
  [[nodiscard]] cublasLtMatmulAlgo_t add(const std::string& matmul, const cublasLtMatmulAlgo_t& algorithm);

  /// Remembers the algorithm that a matmul uses, for text().
  void use(const std::string& matmul, const cublasLtMatmulAlgo_t& algorithm);
  /// All algorithms in use, as JSON that names their GPU and cuBLASLt version; "" if there are none.
  [[nodiscard]] std::string text() const;

 private:
  using Found = std::map<std::string, cublasLtMatmulAlgo_t>;
  /// The contents of the file. Empty, with `is_damaged` set, if it cannot be parsed.
  [[nodiscard]] Found read(bool& is_damaged) const;
  std::string name_;  ///< GPU and cuBLASLt version
  std::filesystem::path file_, damaged_;
  Found found_;   ///< entries of the file
  Found chosen_;  ///< choices of an earlier process
  Found used_;
};

}  // namespace rooflm::backends::cuda
