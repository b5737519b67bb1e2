// Which call recorded each node of a graph.
#include "foreign/captured_graphs.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace rooflm::foreign {
namespace {

using inject::Row;
using inject::RowKind;

/// A call that a capture turned into a node.
struct Recorded {
  RowKind kind = RowKind::kernel;
  CapturedCall call{};
};
using Capture = std::vector<Recorded>;

bool is_device_work(RowKind kind) {
  return kind == RowKind::kernel || kind == RowKind::copy || kind == RowKind::memset;
}

/// What a call of CUDA means here.
enum class Meaning : std::uint8_t { nothing, begin, end, kernel, copy, memset };

Meaning meaning_of(std::string_view name) {
  const auto starts = [&](std::string_view runtime, std::string_view driver) {
    return name.starts_with(runtime) || name.starts_with(driver);
  };
  if (starts("cudaStreamBeginCapture", "cuStreamBeginCapture")) return Meaning::begin;
  if (starts("cudaStreamEndCapture", "cuStreamEndCapture")) return Meaning::end;
  if (starts("cudaLaunch", "cuLaunch")) return Meaning::kernel;
  if (starts("cudaMemcpy", "cuMemcpy")) return Meaning::copy;
  if (starts("cudaMemset", "cuMemset")) return Meaning::memset;
  return Meaning::nothing;
}

RowKind kind_of(Meaning meaning) {
  return meaning == Meaning::copy     ? RowKind::copy
         : meaning == Meaning::memset ? RowKind::memset
                                      : RowKind::kernel;
}

/// Calls in the order of time, those of the runtime before those of the driver that they make.
std::vector<const Row*> calls_of(const std::vector<Row>& rows) {
  std::vector<const Row*> calls;
  for (const Row& row : rows) {
    if (row.kind == RowKind::api) calls.push_back(&row);
  }
  std::ranges::stable_sort(calls, {}, &Row::start_ns);
  return calls;
}

std::vector<Capture> captures_of(const std::vector<Row>& rows,
                                 const std::unordered_map<std::uint32_t, std::string>& texts) {
  std::unordered_set<std::uint32_t> seen;  // correlations of what ran, and of outer calls
  for (const Row& row : rows) {
    if (is_device_work(row.kind) && row.has_node == 0) seen.insert(row.correlation);
  }
  std::vector<Capture> captures;
  std::unordered_map<std::uint32_t, Meaning> meanings;  // by name
  bool is_open = false;
  for (const Row* row : calls_of(rows)) {
    const auto [entry, is_new] = meanings.try_emplace(row->name, Meaning::nothing);
    const auto text = is_new ? texts.find(row->name) : texts.end();
    if (text != texts.end()) entry->second = meaning_of(text->second);
    const Meaning meaning = entry->second;
    if (meaning == Meaning::begin && !is_open) captures.emplace_back();
    if (meaning == Meaning::begin || meaning == Meaning::end) is_open = meaning == Meaning::begin;
    if (!is_open || meaning == Meaning::nothing || meaning == Meaning::begin) continue;
    if (!seen.insert(row->correlation).second) continue;
    captures.back().push_back(
        {.kind = kind_of(meaning), .call = {.time_ns = row->start_ns, .thread = row->place}});
  }
  return captures;
}

/// The nodes of one graph by their numbers.
struct Graph {
  std::uint64_t number = 0, first_ns = ~std::uint64_t{0};
  std::map<std::uint64_t, RowKind> nodes{};
};

constexpr unsigned kGraphBits = 32;  // upper half of a node's number

std::vector<Graph> graphs_of(const std::vector<Row>& rows) {
  std::map<std::uint64_t, Graph> graphs;
  for (const Row& row : rows) {
    if (row.has_node == 0 || !is_device_work(row.kind)) continue;
    Graph& graph = graphs[row.other >> kGraphBits];
    graph.number = row.other >> kGraphBits;
    graph.first_ns = std::min(graph.first_ns, row.start_ns);
    graph.nodes.emplace(row.other, row.kind);
  }
  std::vector<Graph> in_order;
  for (auto& [number, graph] : graphs) in_order.push_back(std::move(graph));
  std::ranges::stable_sort(in_order, {}, &Graph::first_ns);
  return in_order;
}

bool fits(const Capture& capture, const Graph& graph) {
  return std::ranges::equal(capture, graph.nodes, [](const Recorded& recorded, const auto& node) {
    return recorded.kind == node.second;
  });
}

}  // namespace

std::unordered_map<std::size_t, CapturedCall> captured_calls(
    const std::vector<Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts) {
  const std::vector<Graph> graphs = graphs_of(rows);
  if (graphs.empty()) return {};
  std::vector<Capture> captures = captures_of(rows, texts);
  std::unordered_map<std::uint64_t, CapturedCall> of_node;
  for (const Graph& graph : graphs) {
    const auto capture = std::ranges::find_if(captures, [&](const Capture& one) { return fits(one, graph); });
    if (capture == captures.end()) continue;
    auto recorded = capture->begin();
    for (const auto& [node, kind] : graph.nodes) {
      of_node[node] = (recorded++)->call;
      of_node[node].graph = graph.number;
    }
    captures.erase(capture);
  }
  std::unordered_map<std::size_t, CapturedCall> of_row;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].has_node == 0 || !is_device_work(rows[i].kind)) continue;
    if (const auto call = of_node.find(rows[i].other); call != of_node.end()) of_row[i] = call->second;
  }
  return of_row;
}

}  // namespace rooflm::foreign
