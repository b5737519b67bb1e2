// The ceilings that a command uses: of every device, measured once and cached for later commands.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lab/point.h"
#include "record/rows.h"

namespace rooflm::lab {

/// The ceilings to compare measurements with. A ceiling is the best rate ever measured on the machine. If a
/// step beats it, it was measured in a worse moment (memory of a shared machine differs by a third between
/// minutes), and is measured again.
class CeilingBook {
 public:
  /// `remeasure`: ignore the cache of earlier commands.
  explicit CeilingBook(bool remeasure = false) : remeasure_(remeasure) {}

  /// Which ceilings are wanted of the devices of the points.
  enum class Wanted : std::uint8_t {
    products,  ///< matmul rates of the points' dtypes and threads: what MFU divides by
    all        ///< also with one thread, and memory: what roofs are made of
  };
  /// Reads them from the cache and measures those that are missing. Ceilings that the book already has are
  /// kept; devices that run nothing have none. Prints on standard error what it measures.
  void measure(std::span<const Point> points, Wanted wanted);

  [[nodiscard]] const std::vector<record::Ceiling>& rows() const { return rows_; }
  /// The sustained matmul rate of the point's device, dtype and threads: what MFU and shares of peak divide
  /// by.
  [[nodiscard]] std::optional<record::Ceiling> products(const Point& point) const;
  /// A run of a record that was priced by these ceilings. When they rise, so must its roofs and its peak: a
  /// record has one set of ceilings.
  struct PricedRun {
    std::int64_t run = 0;
    Point point;
    bool has_roofs = false;
  };
  [[nodiscard]] std::vector<PricedRun>& priced() { return priced_; }
  [[nodiscard]] const std::vector<PricedRun>& priced() const { return priced_; }

  /// Only for the host's processor; see raise_ceilings.
  std::vector<record::Ceiling> raise(const Point& point, const std::set<std::string>& bounds);

 private:
  void measure_host(std::span<const Point> points, Wanted wanted);
  void add(const std::vector<record::Ceiling>& rows);

  bool remeasure_;
  std::vector<record::Ceiling> rows_;
  std::vector<PricedRun> priced_;
  std::set<std::string> asked_;
  std::map<std::string, int> attempts_;  ///< of raise, by bound
};

/// "sustained matmul rate of fp32: 189 GFLOP/s (2 threads, 1536x1536x1536, median of 12, interval 185 G to
/// 190 G)"; then "; measured under load: ..." inside the brackets where other programs used the processors.
std::string describe_peak(const record::Ceiling& peak);

}  // namespace rooflm::lab
