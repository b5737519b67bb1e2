// The measured tables of data/op_times.json, by device.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perfmodel/op_times.h"

namespace rooflm::perfmodel {

/// The tables of a device of the catalog; nothing when it was never measured.
std::optional<OpTables> tables_of(std::string_view device);

/// Attention of a framework, measured alone at the clock `hz`; backward passes add up in any order.
struct AttentionKernels {
  AttentionTable table{};
  double hz = 0;  ///< the clock of the rates; 0: that of the device as it runs
  double spread = 0;
  double forward_joule_per_flop = 0, backward_joule_per_flop = 0;  ///< at the clock of the tables
};
/// Nothing for an empty name, and where they were not measured on a device of that family. Throws
/// std::logic_error for a name that the data have not.
std::optional<AttentionKernels> attention_kernels(const std::string& name, std::string_view device);

/// What devices without tables take.
struct Transfer {
  OpTables tables{};
  double spread = 0;  ///< of what comes of it
  /// Share of the dense 16-bit peak that GEMMs were seen to reach on a device of that family, and on the
  /// table's.
  double achieved_share = 0, tables_share = 0;
  bool is_share_measured = false;  ///< on that family, and not the table's own
  /// Of the data sheet's bandwidth, the share that streams were seen to reach, by that of the table's device.
  double bandwidth_share = 1;
  bool is_same_chip = false;  ///< as the table's device: the share is its own, at its own power limit
};
Transfer transfer_to(const devices::Device& device);

}  // namespace rooflm::perfmodel
