// The keys of one config.json under the names of the table of families.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/family_table.h"

namespace rooflm::model {

/// Looks keys up as the family means them: fixed values first, then the file's, then defaults. null counts as
/// absent, as in transformers. Messages have the file's names. All throw core::InputError for values that are
/// not what they are asked as. Borrows the family.
class ConfigKeys {
 public:
  ConfigKeys(std::string path, nlohmann::json root, const Family& family)
      : path_(std::move(path)), root_(std::move(root)), family_(family) {}

  /// A positive integer below 2^31. A list of equal ones, one for each layer, counts as one.
  [[nodiscard]] std::int64_t size(const char* key) const;
  [[nodiscard]] std::optional<std::int64_t> optional_size(const char* key) const;
  /// A number of at least 0.
  [[nodiscard]] std::int64_t count(const char* key, std::int64_t otherwise) const;
  /// Number of layers, limited: every layer is listed, and a damaged number must not exhaust memory.
  [[nodiscard]] std::int64_t layers(const char* key) const;
  [[nodiscard]] double positive(const char* key, double otherwise) const;
  [[nodiscard]] double positive(const nlohmann::json& value, const char* key) const;
  [[nodiscard]] bool flag(const char* key, bool otherwise) const;
  /// A string of `known`, or of the first one if absent.
  [[nodiscard]] std::string one_of(const char* key, const std::vector<std::string>& known) const;
  [[nodiscard]] const nlohmann::json* find(const char* key) const;
  /// The name of the key in this file.
  [[nodiscard]] std::string name(const char* key) const;

  [[noreturn]] void refuse(const char* key, const std::string& expected) const;
  [[noreturn]] void fail(const std::string& what) const;
  /// Of what a valid file asks for and rooflm does not have. Throws core::Unavailable.
  [[noreturn]] void lack(const std::string& what) const;

 private:
  [[nodiscard]] const nlohmann::json* in_file(const std::string& name) const;

  std::string path_;
  nlohmann::json root_;
  const Family& family_;
};

}  // namespace rooflm::model
