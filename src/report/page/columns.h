// Typed columns as parts of the document: an object for each value, or an array for each column. For .cpp
// files only.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "report/page/json_parts.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// An object whose members are the columns of `value`.
template <class R>
Json json_object(const TypedColumns<R>& columns, const R& value) {
  Json json = Json::object();
  for (const TypedColumn<R>& one : columns.list()) json.emplace(one.column.key, json_cell(one.cell(value)));
  return json;
}

template <class R, class Values>
Json json_objects(const TypedColumns<R>& columns, const Values& values) {
  Json all = Json::array();
  for (const R& value : values) all.push_back(json_object(columns, value));
  return all;
}

/// An array for each column, also without values. Texts are indices into "names", each text once.
template <class R, class Values>
Json json_arrays(const TypedColumns<R>& columns, const Values& values) {
  std::vector<Json> arrays(columns.list().size(), Json::array());
  std::vector<std::string> names;
  std::unordered_map<std::string, std::size_t> index;
  for (const R& value : values) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      Cell cell = columns.list()[i].cell(value);
      if (auto* text = std::get_if<std::string>(&cell)) {
        const auto [entry, is_new] = index.try_emplace(*text, names.size());
        if (is_new) names.push_back(std::move(*text));
        arrays[i].push_back(entry->second);
      } else {
        arrays[i].push_back(json_cell(cell));
      }
    }
  }
  Json json = Json::object();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    json.emplace(columns.list()[i].column.key, std::move(arrays[i]));
  json["names"] = std::move(names);
  return json;
}

}  // namespace rooflm::report
