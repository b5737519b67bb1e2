// Finding the documents among files and folders, and dealing them to training and validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_input.h"

namespace rooflm::text {

/// A file of text, or a part of one.
struct Document {
  std::filesystem::path path;
  std::uint64_t file_bytes = 0;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  /// What can be read once only (core::is_stream) is kept; a file is mapped when it is needed.
  std::shared_ptr<const core::TextInput> kept{};
};

/// A document, open.
class DocumentText {
 public:
  /// Throws core::InputError when it cannot be read or has another size than when it was found.
  explicit DocumentText(const Document& document);
  [[nodiscard]] std::string_view text() const { return file_->text().substr(begin_, bytes_); }

 private:
  std::shared_ptr<const core::TextInput> file_;
  std::uint64_t begin_;
  std::uint64_t bytes_;
};

using Message = std::function<void(const std::string&)>;

/// All files of `inputs`: a folder stands for the files below it, sorted by path, without names that begin
/// with a dot and without the folder `output` (of `output` itself: without prepared data). Skips empty and
/// binary files (they hold a NUL byte), and says so. Pipes and "-", standard input, are read to their end; in
/// folders they are passed over. Throws core::InputError for inputs that are missing or
/// cannot be read, and when no document is found.
std::vector<Document> find_documents(const std::vector<std::filesystem::path>& inputs,
                                     const std::filesystem::path& output, const Message& message);

struct Split {
  std::vector<Document> train;
  std::vector<Document> val;
};

/// Deals documents out, keeping their order. Validation gets at most `fraction` of the documents and of the
/// bytes, chosen by `seed`, but at least the smallest one; of a single document it gets the tail, cut after a
/// line feed if there is one. All is training if `fraction` is 0.
Split split_documents(const std::vector<Document>& documents, double fraction, std::uint64_t seed);

}  // namespace rooflm::text
