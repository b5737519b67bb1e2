// The measured tables of data/op_times.json, by device.
#include "perfmodel/op_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "perfmodel/planning_text.h"

namespace rooflm::perfmodel {
namespace {

using Json = nlohmann::json;

const Json& tables_json() {
  static const Json kData = Json::parse(op_times_text());
  return kData;
}

std::vector<MatmulTable::Tile> tiles_of(const Json& json) {
  std::vector<MatmulTable::Tile> tiles;
  for (const Json& tile : json)
    tiles.push_back({.rows = tile.at(0), .columns = tile.at(1), .share = tile.at(2)});
  return tiles;
}

/// `of_dtype`: what holds for layouts that say nothing else.
MatmulTable::Layout layout_of(const Json& json, const Json& of_dtype) {
  const auto own = [&](const char* key) { return json.contains(key) ? json.at(key) : of_dtype.at(key); };
  return {.share = json.at("share"),
          .splits_k = json.at("splits_k"),
          .whole_waves = own("whole_waves"),
          .least_split_k = own("least_split_k"),
          .tiles = json.contains("tiles") ? tiles_of(json.at("tiles")) : std::vector<MatmulTable::Tile>()};
}

MatmulTable matmul_of(const Json& json) {
  MatmulTable table{.flop_per_s = json.at("flop_per_s"),
                    .launch_s = json.at("launch_s"),
                    .fill_k = json.at("fill_k"),
                    .byte_per_s = json.at("byte_per_s"),
                    .store_share = json.at("store_share"),
                    .epilogues = json.at("epilogues").at("of_op"),
                    .whole_waves = json.at("whole_waves"),
                    .rate_of_dtype = json.at("rate_of_dtype"),
                    .uneven_share = json.at("uneven_rows").at("share"),
                    .even_rows = json.at("uneven_rows").at("multiple"),
                    .most_flop_per_s = json.at("most_flop_per_s")};
  for (const auto& [dtype, entry] : json.at("layouts").at("of_dtype").items()) {
    table.layouts[dtype] = {.plain = layout_of(entry.at("nn"), entry),
                            .b_transposed = layout_of(entry.at("nt"), entry),
                            .a_transposed = layout_of(entry.at("tn"), entry)};
  }
  table.tiles = tiles_of(json.at("tiles"));
  for (const auto& [dtype, tiles] : json.at("tiles_of_dtype").at("of_dtype").items())
    table.tiles_of_dtype[dtype] = tiles_of(tiles);
  return table;
}

std::vector<AttentionTable::Head> heads_of(const Json& json) {
  std::vector<AttentionTable::Head> heads;
  for (const Json& head : json.at("heads")) {
    heads.push_back({.head_dim = head.at("head_dim"),
                     .flop_per_s = head.at("flop_per_s"),
                     .half_seq = head.at("half_seq")});
  }
  return heads;
}

AttentionTable attention_of(const Json& json) {
  return {.forward = heads_of(json.at("forward")),
          .backward = heads_of(json.at("backward")),
          .forward_launch_s = json.at("forward").at("launch_s"),
          .backward_launch_s = json.at("backward").at("launch_s"),
          .nondeterministic_gain = json.at("nondeterministic_gain")};
}

/// At a clock, in the FLOPs of the tables: those above the diagonal count, and backward twice forward.
OwnAttention own_attention_at(double hz) {
  constexpr double kForward = 2;
  constexpr double kBackward = 2 * 2 / 2.5;
  const Json& json = tables_json().at("own_attention");
  OwnAttention own{.spread = json.at("spread")};
  for (const auto& [name, entry] : json.at("kernels").items()) {
    OwnAttention::Kernels& kernels = own.kernels[name];
    kernels = {.forward = heads_of(entry.at("forward")),
               .backward = heads_of(entry.at("backward")),
               .measured = entry.at("measured")};
    const double clocks = hz / entry.at("hz").get<double>();
    for (AttentionTable::Head& head : kernels.forward) head.flop_per_s *= kForward * clocks;
    for (AttentionTable::Head& head : kernels.backward) head.flop_per_s *= kBackward * clocks;
  }
  return own;
}

PowerLaw power_of(const Json& json) {
  return {.table_hz = json.at("table_hz"),
          .max_hz = json.at("max_hz"),
          .static_w = json.at("static_w"),
          .exponent = json.at("exponent")};
}

double joule_per_byte(const Json& power) {
  const Json& copy = power.at("measured").at("bytes");
  return (copy.at("watt").get<double>() - power.at("static_w").get<double>()) /
         copy.at("byte_per_s").get<double>();
}

/// What is left of a kernel's power, by its FLOP, at the clock of the tables.
double joule_per_flop(const Json& power, const Json& kernel) {
  const auto number = [](const Json& of, const char* key) { return of.at(key).get<double>(); };
  const double watt = number(kernel, "watt") - number(power, "static_w") -
                      joule_per_byte(power) * number(kernel, "byte_per_s");
  return watt / number(kernel, "flop_per_s") *
         std::pow(number(power, "table_hz") / number(kernel, "hz"), number(power, "exponent"));
}

std::map<double, double> joule_by_head(const Json& power, const char* direction) {
  std::map<double, double> joule;
  for (const Json& kernel : power.at("measured").at(direction))
    joule[kernel.at("head_dim")] = joule_per_flop(power, kernel);
  return joule;
}

OpEnergies energies_of(const Json& power) {
  const auto of = [&](const char* kernel) { return joule_per_flop(power, power.at("measured").at(kernel)); };
  // A step's products: forward with fast sums, both gradients without.
  const double fp8 = (of("matmul_fp8") + 2 * of("matmul_fp8_gradient")) / 3;
  return {.joule_per_byte = joule_per_byte(power),
          .joule_per_flop = {{"bf16", of("matmul")},
                             {"fp16", of("matmul_fp16")},
                             {"fp8", fp8},
                             {"bf16x6", of("matmul_bf16x6")},
                             {"fp32", of("matmul_fp32")}},
          .attention_forward = joule_by_head(power, "attention_forward"),
          .attention_backward = joule_by_head(power, "attention_backward")};
}

/// Some kinds were measured at large sizes only, where bandwidth binds them: smaller ones take as much less,
/// and what the shortest op that was measured takes. Kinds whose smallest size is bound by its start stay as
/// they are: below half of the largest rate of the kind.
void continue_to_small_sizes(std::map<std::string, Curve, std::less<>>& kinds) {
  double shortest_s = std::numeric_limits<double>::infinity();
  for (const auto& [kind, curve] : kinds) shortest_s = std::min(shortest_s, curve.front().second);
  const auto rate = [](const std::pair<double, double>& point) { return point.first / point.second; };
  for (auto& [kind, curve] : kinds) {
    const auto [bytes, seconds] = curve.front();
    const auto fastest = std::ranges::max_element(curve, {}, rate);
    if (rate(curve.front()) < 0.5 * rate(*fastest) || bytes <= 0) continue;
    Curve small;
    for (const double times : {1024, 256, 64, 16, 4})
      small.emplace_back(bytes / times, shortest_s + (seconds - shortest_s) / times);
    curve.insert(curve.begin(), small.begin(), small.end());
  }
}

std::map<std::string, Curve, std::less<>> curves_of(const Json& points_of_kinds) {
  std::map<std::string, Curve, std::less<>> kinds;
  for (const auto& [kind, points] : points_of_kinds.items()) {
    for (const Json& point : points) kinds[kind].emplace_back(point.at(0), point.at(1));
  }
  continue_to_small_sizes(kinds);
  return kinds;
}

OpTables measured_of(const Json& json) {
  OpTables tables{.device = json.at("device"),
                  .multiprocessors = json.at("multiprocessors"),
                  .power = power_of(json.at("power")),
                  .energies = energies_of(json.at("power")),
                  .matmul = matmul_of(json.at("matmul")),
                  .attention = attention_of(json.at("attention")),
                  .own_attention = own_attention_at(json.at("power").at("table_hz")),
                  .matmul_spread = json.at("matmul").at("error_p90"),
                  .attention_spread = json.at("attention").at("spread"),
                  .moved_spread = json.at("moved_spread")};
  // All of the tables are at one clock.
  const double clocks = tables.power.table_hz / json.at("attention").at("hz").get<double>();
  for (auto* heads : {&tables.attention.forward, &tables.attention.backward}) {
    for (AttentionTable::Head& head : *heads) head.flop_per_s *= clocks;
  }
  tables.moved = curves_of(json.at("moved"));
  if (json.contains("own_moved")) tables.own_moved = curves_of(json.at("own_moved"));
  for (const auto& [kind, points] : json.at("long_rows").at("of_op").items()) {
    for (const Json& point : points) tables.long_rows[kind].emplace_back(point.at(0), point.at(1));
  }
  return tables;
}

/// The bytes of one device at the bandwidth of another: what is bound by launching stays as it is.
void scale_memory(OpTables& tables, double scale) {
  tables.matmul.byte_per_s *= scale;
  for (auto* kinds : {&tables.moved, &tables.own_moved}) {
    for (auto& [kind, curve] : *kinds) {
      const double least = curve.front().second;
      for (auto& [bytes, seconds] : curve) seconds = std::max(std::min(least, seconds), seconds / scale);
    }
  }
}

const Json* entry_of(std::string_view device) {
  for (const Json& entry : tables_json().at("devices")) {
    if (entry.at("device") == device) return &entry;
  }
  return nullptr;
}

}  // namespace

std::optional<OpTables> tables_of(std::string_view device) {
  const Json* entry = entry_of(device);
  if (entry == nullptr) return std::nullopt;
  if (!entry->contains("like")) return measured_of(*entry);
  OpTables tables = measured_of(*entry_of(entry->at("like").get<std::string>()));
  tables.device = device;
  scale_memory(tables, entry->at("memory_scale"));
  tables.moved_spread += entry->at("spread").get<double>();
  return tables;
}

std::optional<AttentionKernels> attention_kernels(const std::string& name, std::string_view device) {
  if (name.empty()) return std::nullopt;
  const Json& all = tables_json().at("attention_kernels");
  if (!all.contains(name)) throw std::logic_error("data/op_times.json has no attention kernels " + name);
  const auto is_of_device = [&](const Json& entry) {
    return std::ranges::any_of(entry.at("families"), [&](const Json& family) {
      return device.starts_with(family.get<std::string>());
    });
  };
  const Json& measured = all.at(name);
  const auto found = std::ranges::find_if(measured, is_of_device);
  if (found == measured.end()) return std::nullopt;
  AttentionKernels kernels{
      .table = {.forward = heads_of(found->at("forward")), .backward = heads_of(found->at("backward"))},
      .hz = found->at("hz"),
      .spread = found->at("spread")};
  if (found->contains("power")) {
    const Json& power = entry_of(tables_json().at("transfer").at("from").get<std::string>())->at("power");
    kernels.forward_joule_per_flop = joule_per_flop(power, found->at("power").at("forward"));
    kernels.backward_joule_per_flop = joule_per_flop(power, found->at("power").at("backward"));
  }
  return kernels;
}

Transfer transfer_to(const devices::Device& device) {
  const Json& json = tables_json().at("transfer");
  const std::string from = json.at("from");
  // The longest key that fits comes last.
  const auto of_family = [&](const Json& shares, double found) {
    for (const auto& [family, share] : shares.items()) {
      if (share.is_number() && device.key.starts_with(family)) found = share;
    }
    return found;
  };
  const double own = json.at("achieved_share").at("h100");
  const double own_bandwidth = json.at("achieved_bandwidth").at("h100");
  Transfer transfer{
      .tables = measured_of(*entry_of(from)),
      .spread = json.at("spread"),
      .achieved_share = of_family(json.at("achieved_share"), own),
      .tables_share = own,
      .is_share_measured = of_family(json.at("achieved_share"), 0) > 0,
      .bandwidth_share = of_family(json.at("achieved_bandwidth"), own_bandwidth) / own_bandwidth};
  transfer.is_same_chip = std::ranges::any_of(json.at("same_chip"), [&](const Json& family) {
    return device.key.starts_with(family.get<std::string>());
  });
  return transfer;
}

}  // namespace rooflm::perfmodel
