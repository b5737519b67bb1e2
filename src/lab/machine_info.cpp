// The machine and what this binary was built with, as `info` prints it and records keep it.
#include "lab/machine_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Eigen/Core>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>

#include "backends/registry.h"
#include "core/units.h"
#include "lab/ceilings/ceilings.h"
#include "lab/devices.h"
#include "measure/counters.h"
#include "measure/machine.h"

namespace rooflm::lab {
namespace {

using Json = nlohmann::ordered_json;

Json cpu_json(const measure::Processor& processor) {
  Json caches = Json::array();
  for (const measure::Cache& cache : processor.caches) {
    caches.push_back({{"level", cache.level},
                      {"type", cache.type},
                      {"bytes", cache.bytes},
                      {"shared_by_cpus", cache.shared_by}});
  }
  return {{"model", processor.model},
          {"cores", processor.cores},
          {"threads", processor.threads},
          {"features", processor.features},
          {"caches", std::move(caches)}};
}

/// What each device that computes computes in.
Json dtypes_json() {
  Json dtypes = Json::object();
  for (const backends::Provider* provider : backends::providers()) {
    if (provider->runs())
      dtypes[std::string(provider->name())] = provider->describe(provider->parse("")).dtypes;
  }
  return dtypes;
}

Json libraries_json() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
          {"Eigen", fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)},
          {"OpenMP", std::to_string(_OPENMP)},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"compiler", std::string("g++ ") + __VERSION__}};
}

Json counters_json() {
  const measure::Counters counters;
  return {{"available", counters.is_available()}, {"reason", counters.reason()}};
}

/// Without devices other than the processor.
Json collect() {
  const measure::SystemMemory memory = measure::query_memory();
  const auto bytes = [](std::optional<std::int64_t> value) { return value ? Json(*value) : Json(); };
  Json info = {
      {"version", ROOFLM_VERSION},
      {"measuring", measuring_on_processor()},
      {"cpu", cpu_json(measure::query_processor())},
      {"memory", {{"total_bytes", bytes(memory.total_bytes)}, {"free_bytes", bytes(memory.available_bytes)}}},
      {"default_threads", resolve_threads(0)},
      {"counters", counters_json()},
      {"libraries", libraries_json()}};
  return info;
}

std::string amount(const Json& bytes) {
  return bytes.is_null() ? "unknown" : core::format_bytes(bytes.get<double>());
}

}  // namespace

std::string machine_json() {
  Json info = collect();
  info["dtypes"] = dtypes_json();
  for (const backends::Provider* provider : backends::providers()) {
    const std::string about = provider->environment_json();
    if (!about.empty()) info[std::string(provider->name())] = Json::parse(about);
  }
  return info.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::pair<std::string, std::string>> machine_lines(bool opens) {
  const Json info = collect();
  const Json& cpu = info["cpu"];
  std::vector<std::pair<std::string, std::string>> lines = {
      {"rooflm", info["version"]},
      {"processor", cpu["model"]},
      {"cores", fmt::format("{} cores, {} threads for this process", cpu["cores"].get<int>(),
                            cpu["threads"].get<int>())},
      {"instructions", fmt::format("{}", fmt::join(cpu["features"].get<std::vector<std::string>>(), " "))}};
  for (const Json& cache : cpu["caches"]) {
    lines.emplace_back(fmt::format("L{} {}", cache["level"].get<int>(), cache["type"].get<std::string>()),
                       fmt::format("{} KiB, of processors {}", cache["bytes"].get<std::int64_t>() / 1024,
                                   cache["shared_by_cpus"].get<std::string>()));
  }
  lines.emplace_back("memory", fmt::format("{}, {} free", amount(info["memory"]["total_bytes"]),
                                           amount(info["memory"]["free_bytes"])));
  lines.emplace_back(
      "device cpu",
      fmt::format(
          "available: fp32, bf16, fp16 (reference kernels except for GEMMs and casts), fp8 (reference "
          "kernels for GEMMs and casts); {} threads by default",
          info["default_threads"].get<int>()));
  for (const backends::Provider* provider : backends::providers()) {
    const backends::Lines about = provider->environment(opens);
    lines.insert(lines.end(), about.begin(), about.end());
  }
  const Json& counters = info["counters"];
  lines.emplace_back("counters", counters["available"].get<bool>()
                                     ? "available"
                                     : "not available: " + counters["reason"].get<std::string>());
  std::vector<std::string> libraries;
  for (const auto& [name, version] : info["libraries"].items()) {
    libraries.push_back(name + " " + version.get<std::string>());
  }
  lines.emplace_back("built with", fmt::format("{}", fmt::join(libraries, ", ")));
  return lines;
}

}  // namespace rooflm::lab
