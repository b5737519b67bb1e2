// The tables of a run record: which member of a row each column holds. schema.sql says what the columns mean.
#pragma once

#include <string>
#include <string_view>
#include <tuple>

#include "record/rows.h"

namespace rooflm::record {

template <class Row, class Value>
struct TableColumn {
  std::string_view name;
  Value Row::*member;
};
template <class Row, class Value>
constexpr TableColumn<Row, Value> column(std::string_view name, Value Row::*member) {
  return {name, member};
}

/// What writer and reader know of the table of a row: its name, its columns, and the order in which it is
/// read; "rowid": as written.
template <class Row>
struct Table;

template <>
struct Table<Environment> {
  static constexpr std::string_view kName = "environment", kOrder = "key";
  static constexpr std::tuple kColumns = {column("key", &Environment::key),
                                          column("value", &Environment::value),
                                          column("unit", &Environment::unit)};
};

template <>
struct Table<Ceiling> {
  static constexpr std::string_view kName = "ceiling", kOrder = "id";
  static constexpr std::tuple kColumns = {column("device", &Ceiling::device),
                                          column("what", &Ceiling::what),
                                          column("level", &Ceiling::level),
                                          column("dtype", &Ceiling::dtype),
                                          column("threads", &Ceiling::threads),
                                          column("value", &Ceiling::value),
                                          column("unit", &Ceiling::unit),
                                          column("ci_low", &Ceiling::ci_low),
                                          column("ci_high", &Ceiling::ci_high),
                                          column("samples", &Ceiling::samples),
                                          column("problem", &Ceiling::problem),
                                          column("source", &Ceiling::source),
                                          column("measured_utc", &Ceiling::measured_utc)};
};

template <>
struct Table<Run> {
  static constexpr std::string_view kName = "run", kOrder = "id";
  static constexpr std::tuple kColumns = {column("label", &Run::label), column("kind", &Run::kind),
                                          column("status", &Run::status)};
};

template <>
struct Table<Fact> {
  static constexpr std::string_view kName = "fact", kOrder = "key";
  static constexpr std::tuple kColumns = {column("key", &Fact::key), column("value", &Fact::value),
                                          column("unit", &Fact::unit), column("text", &Fact::text)};
};

template <>
struct Table<Sample> {
  static constexpr std::string_view kName = "sample", kOrder = "step, phase";
  static constexpr std::tuple kColumns = {column("step", &Sample::step), column("phase", &Sample::phase),
                                          column("seconds", &Sample::seconds), column("kind", &Sample::kind)};
};

template <>
struct Table<Op> {
  static constexpr std::string_view kName = "op", kOrder = "op";
  static constexpr std::tuple kColumns = {column("op", &Op::op),
                                          column("kind", &Op::kind),
                                          column("class", &Op::op_class),
                                          column("kernel", &Op::kernel),
                                          column("name", &Op::name),
                                          column("phase", &Op::phase),
                                          column("scope", &Op::scope),
                                          column("dtype", &Op::dtype),
                                          column("shapes", &Op::shapes),
                                          column("micro_batch", &Op::micro_batch),
                                          column("recomputed", &Op::recomputed),
                                          column("matmul_flop", &Op::matmul_flop),
                                          column("elementwise_flop", &Op::elementwise_flop),
                                          column("bytes_read", &Op::bytes_read),
                                          column("bytes_written", &Op::bytes_written),
                                          column("launches", &Op::launches),
                                          column("library", &Op::library),
                                          column("variant", &Op::variant),
                                          column("workspace_bytes", &Op::workspace_bytes),
                                          column("lane", &Op::lane)};
};

template <>
struct Table<Event> {
  static constexpr std::string_view kName = "event", kOrder = "rowid";
  static constexpr std::tuple kColumns = {
      column("step", &Event::step), column("op", &Event::op), column("start_ns", &Event::start_ns),
      column("device_ns", &Event::device_ns), column("wall_ns", &Event::wall_ns)};
};

template <>
struct Table<Lane> {
  static constexpr std::string_view kName = "lane", kOrder = "lane";
  static constexpr std::tuple kColumns = {column("lane", &Lane::lane),     column("kind", &Lane::kind),
                                          column("device", &Lane::device), column("stream", &Lane::stream),
                                          column("thread", &Lane::thread), column("name", &Lane::name)};
};

template <>
struct Table<ActivityName> {
  static constexpr std::string_view kName = "activity_name", kOrder = "name";
  static constexpr std::tuple kColumns = {column("name", &ActivityName::name),
                                          column("kind", &ActivityName::kind),
                                          column("text", &ActivityName::text)};
};

/// Its details and its work are in tables of their own.
template <>
struct Table<Activity> {
  static constexpr std::string_view kName = "activity", kOrder = "rowid";
  static constexpr std::tuple kColumns = {
      column("id", &Activity::id),         column("name", &Activity::name),
      column("lane", &Activity::lane),     column("start_ns", &Activity::start_ns),
      column("end_ns", &Activity::end_ns), column("correlation", &Activity::correlation),
      column("bytes", &Activity::bytes),   column("step", &Activity::step),
      column("op", &Activity::op)};
};

template <>
struct Table<KernelWork> {
  static constexpr std::string_view kName = "kernel_work", kOrder = "work";
  static constexpr std::tuple kColumns = {column("work", &KernelWork::work),
                                          column("call", &KernelWork::call),
                                          column("shapes", &KernelWork::shapes),
                                          column("dtype", &KernelWork::dtype),
                                          column("matmul_flop", &KernelWork::matmul_flop),
                                          column("needed_flop", &KernelWork::needed_flop),
                                          column("bytes", &KernelWork::bytes),
                                          column("far_bytes", &KernelWork::far_bytes)};
};

template <>
struct Table<Counter> {
  static constexpr std::string_view kName = "counter", kOrder = "rowid";
  static constexpr std::tuple kColumns = {
      column("phase", &Counter::phase), column("scope", &Counter::scope),
      column("name", &Counter::name),   column("value", &Counter::value),
      column("unit", &Counter::unit),   column("source", &Counter::source),
      column("op", &Counter::op),       column("activity", &Counter::activity)};
};

template <>
struct Table<Gauge> {
  static constexpr std::string_view kName = "gauge", kOrder = "rowid";
  static constexpr std::tuple kColumns = {column("device", &Gauge::device), column("name", &Gauge::name),
                                          column("time_ns", &Gauge::time_ns), column("value", &Gauge::value),
                                          column("unit", &Gauge::unit)};
};

template <>
struct Table<ExpertRows> {
  static constexpr std::string_view kName = "expert_rows", kOrder = "rowid";
  static constexpr std::tuple kColumns = {
      column("step", &ExpertRows::step), column("layer", &ExpertRows::layer),
      column("micro_batch", &ExpertRows::micro_batch), column("expert", &ExpertRows::expert),
      column("rows", &ExpertRows::rows)};
};

template <>
struct Table<Tensor> {
  static constexpr std::string_view kName = "tensor", kOrder = "tensor";
  static constexpr std::tuple kColumns = {
      column("tensor", &Tensor::tensor),     column("name", &Tensor::name),
      column("role", &Tensor::role),         column("dtype", &Tensor::dtype),
      column("shape", &Tensor::shape),       column("bytes", &Tensor::bytes),
      column("first_op", &Tensor::first_op), column("last_op", &Tensor::last_op),
      column("offset", &Tensor::offset)};
};

template <>
struct Table<MemoryEvent> {
  static constexpr std::string_view kName = "memory_event", kOrder = "seq";
  static constexpr std::tuple kColumns = {column("seq", &MemoryEvent::seq),
                                          column("op", &MemoryEvent::op),
                                          column("tensor", &MemoryEvent::tensor),
                                          column("bytes", &MemoryEvent::bytes),
                                          column("live_bytes", &MemoryEvent::live_bytes),
                                          column("time_ns", &MemoryEvent::time_ns),
                                          column("device", &MemoryEvent::device),
                                          column("address", &MemoryEvent::address)};
};

template <>
struct Table<Prediction> {
  static constexpr std::string_view kName = "prediction", kOrder = "subject, quantity";
  static constexpr std::tuple kColumns = {
      column("subject", &Prediction::subject), column("quantity", &Prediction::quantity),
      column("value", &Prediction::value), column("unit", &Prediction::unit),
      column("bound", &Prediction::bound)};
};

template <>
struct Table<Cell> {
  static constexpr std::string_view kName = "cell", kOrder = "rowid";
  static constexpr std::tuple kColumns = {column("series", &Cell::series), column("row", &Cell::row),
                                          column("col", &Cell::col),       column("value", &Cell::value),
                                          column("text", &Cell::text),     column("unit", &Cell::unit)};
};

/// "key, value, unit".
template <class Row>
std::string columns_of_table() {
  std::string names;
  std::apply([&](const auto&... one) { ((names += (names.empty() ? "" : ", "), names += one.name), ...); },
             Table<Row>::kColumns);
  return names;
}

/// Calls `visit` with each member of the row, in the order of the columns.
template <class Row, class Visit>
void each_column(Row& row, const Visit& visit) {
  std::apply([&](const auto&... one) { (visit(row.*one.member), ...); },
             Table<std::remove_const_t<Row>>::kColumns);
}

}  // namespace rooflm::record
