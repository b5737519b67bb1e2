// Ceilings as rows of a record, and the file that keeps them.
#include "measure/ceilings.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "core/cache_file.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/printable.h"

namespace rooflm::measure {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json to_json(const record::Ceiling& row) {
  return {{"device", row.device},   {"what", row.what},       {"level", row.level},
          {"dtype", row.dtype},     {"threads", row.threads}, {"value", row.value},
          {"unit", row.unit},       {"ci_low", row.ci_low},   {"ci_high", row.ci_high},
          {"samples", row.samples}, {"problem", row.problem}, {"measured_utc", row.measured_utc}};
}

/// Throws nlohmann's exceptions for what is missing or of another type, std::domain_error for impossible
/// values.
record::Ceiling from_json(const nlohmann::json& json) {
  record::Ceiling row{.device = json.at("device").get<std::string>(),
                      .what = json.at("what").get<std::string>(),
                      .level = json.at("level").get<std::string>(),
                      .dtype = json.at("dtype").get<std::string>(),
                      .threads = json.at("threads").get<int>(),
                      .value = json.at("value").get<double>(),
                      .unit = json.at("unit").get<std::string>(),
                      .ci_low = json.at("ci_low").get<double>(),
                      .ci_high = json.at("ci_high").get<double>(),
                      .samples = json.at("samples").get<std::int64_t>(),
                      .problem = json.at("problem").get<std::string>(),
                      .source = "measured",
                      .measured_utc = json.at("measured_utc").get<std::string>()};
  const bool is_rate = std::isfinite(row.value) && row.value > 0 && row.ci_low > 0 &&
                       row.ci_low <= row.value && row.value <= row.ci_high;
  if (!is_rate || (row.unit != "flop/s" && row.unit != "byte/s")) {
    throw std::domain_error(fmt::format("{} {} of {} {} is not a rate within its interval", row.what,
                                        row.level, row.value, row.unit));
  }
  return row;
}

Json to_json(const CeilingKey& key) {
  return {{"processor", key.processor},
          {"threads", key.threads},
          {"rooflm", key.version},
          {"measuring", key.measuring}};
}

}  // namespace

record::Ceiling ceiling_row(const Peak& peak) {
  return {.device = "cpu",
          .what = peak.what,
          .level = peak.level,
          .dtype = peak.dtype,
          .threads = peak.threads,
          .value = peak.rate.median,
          .unit = peak.unit,
          .ci_low = peak.rate.median_ci.low,
          .ci_high = peak.rate.median_ci.high,
          .samples = static_cast<std::int64_t>(peak.rate.count),
          .problem = peak.problem,
          .source = "measured",
          .measured_utc = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))};
}

fs::path ceiling_file(const CeilingKey& key) {
  const fs::path folder = core::cache_folder();
  if (folder.empty()) return {};
  return folder / fmt::format("ceilings-{}-{}-threads-{}-{}.json", core::file_name_part(key.processor),
                              key.threads, core::file_name_part(key.version),
                              core::file_name_part(key.measuring));
}

KeptCeilings read_ceilings(const fs::path& file, const CeilingKey& key) {
  std::error_code ignored;
  if (file.empty() || !fs::exists(file, ignored)) return {};
  const auto fault = [&](const std::string& reason) {
    return KeptCeilings{.rows = {}, .fault = fmt::format("{}: {}", file.string(), reason)};
  };
  try {
    const core::MappedFile mapped(file);
    const nlohmann::json json = core::parse_json_object(mapped.text(), file.string(), "the file");
    if (json.at("key") != nlohmann::json(to_json(key)))
      return fault("has the ceilings of another machine, version or build");
    KeptCeilings kept;
    for (const nlohmann::json& row : json.at("ceilings")) kept.rows.push_back(from_json(row));
    return kept;
  } catch (const core::Error& error) {
    return {.rows = {}, .fault = error.what()};
  } catch (const std::exception& error) {
    return fault(core::printable(error.what()));
  }
}

void write_ceilings(const fs::path& file, const CeilingKey& key, const std::vector<record::Ceiling>& rows) {
  Json list = Json::array();
  for (const record::Ceiling& row : rows) list.push_back(to_json(row));
  const Json json = {{"key", to_json(key)}, {"ceilings", std::move(list)}};
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) {
    throw core::InputError(fmt::format("cannot make {}: {}", file.parent_path().string(), error.message()));
  }
  core::write_file_atomically(file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace rooflm::measure
