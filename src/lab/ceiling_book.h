// The ceilings that a command goes by: of every device that it uses, measured once, kept for later commands.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lab/point.h"
#include "record/rows.h"

namespace rooflm::lab {

/// What a measurement is held against. A ceiling is the best that the machine was ever seen to do: one that a
/// step beats was measured in a worse moment (memory of a shared machine differs by a third between minutes),
/// and is measured again beside that step.
class CeilingBook {
 public:
  /// `remeasure`: forget what earlier commands kept.
  explicit CeilingBook(bool remeasure = false) : remeasure_(remeasure) {}

  /// Which ceilings are wanted of the devices of the points.
  enum class Wanted : std::uint8_t {
    products,  ///< matmul rates of the points' dtypes and threads: what MFU divides by
    all        ///< also with one thread, and memory: what roofs are made of
  };
  /// Takes them from the file that keeps them as far as it has them and measures the others. What the book
  /// has already is not asked for again; devices that run nothing have none. Says on standard error what it
  /// measures.
  void measure(std::span<const Point> points, Wanted wanted);

  [[nodiscard]] const std::vector<record::Ceiling>& rows() const { return rows_; }
  /// The sustained matmul rate of the point's device, dtype and threads: what MFU and shares of peak divide
  /// by.
  [[nodiscard]] std::optional<record::Ceiling> products(const Point& point) const;
  /// Of the host's processor only; see raise_ceilings.
  std::vector<record::Ceiling> raise(const Point& point, const std::set<std::string>& bounds);

 private:
  void measure_host(std::span<const Point> points, Wanted wanted);
  void add(const std::vector<record::Ceiling>& rows);

  bool remeasure_;
  std::vector<record::Ceiling> rows_;
  std::set<std::string> asked_;
  std::map<std::string, int> attempts_;  ///< of raise, by bound
};

/// "sustained matmul rate of fp32: 189 GFLOP/s (2 threads, 1536x1536x1536, median of 12, interval 185 G to
/// 190 G)"
std::string describe_peak(const record::Ceiling& peak);

}  // namespace rooflm::lab
