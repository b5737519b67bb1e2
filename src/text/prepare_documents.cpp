// Walks folders in a fixed order, so that the same inputs give the same shards.
#include "text/prepare_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/shuffle.h"
#include "core/stop_signals.h"
#include "text/bpe_utf8.h"
#include "text/prepare_output.h"

namespace rooflm::text {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) {
  const auto name = path.filename().string();
  return name.size() > 1 && name.front() == '.' && name != "..";
}

std::vector<fs::path> files_below(const fs::path& folder, const fs::path& output) {
  std::vector<fs::path> files;
  // By device and inode: a canonical path of each folder takes a call for each folder above it.
  const auto is_output = [&output](const fs::path& path) {
    std::error_code ignored;  // an output that is not there yet
    return fs::equivalent(path, output, ignored);
  };
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    const auto& path = entry->path();
    if (entry->is_directory()) {
      if (is_hidden(path) || is_output(path)) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !is_hidden(path)) {
      const bool is_ours = is_prepared_name(path.filename().string()) && is_output(path.parent_path());
      if (!is_ours) files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void add_file(const fs::path& path, std::vector<Document>& documents, const Message& message) {
  const auto file = std::make_shared<const core::TextInput>(path);
  const std::string_view text = file->text();
  if (text.empty() || text.find('\0') != std::string_view::npos) {
    message(fmt::format("skipped {}: {}", path.string(),
                        text.empty() ? "empty" : "binary (it holds a NUL byte)"));
    return;
  }
  if (replace_invalid_utf8(text))
    message(fmt::format("{}: not valid UTF-8; its bytes are kept", path.string()));
  documents.push_back({path, text.size(), 0, text.size(), core::is_stream(path) ? file : nullptr});
}

/// The tail of a single document: after the last line feed that leaves it `wanted` bytes or more, else at a
/// character.
std::size_t tail_begin(std::string_view text, std::size_t wanted) {
  const std::size_t at = text.size() - std::min(wanted, text.size());
  const std::size_t line = at > 0 ? text.rfind('\n', at - 1) : std::string_view::npos;
  if (line != std::string_view::npos && line > 0) return line + 1;
  std::size_t cut = at;
  while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80) ++cut;
  return cut;
}

}  // namespace

DocumentText::DocumentText(const Document& document)
    : file_(document.kept ? document.kept : std::make_shared<const core::TextInput>(document.path)),
      begin_(document.begin),
      bytes_(document.bytes) {
  if (file_->text().size() != document.file_bytes) {
    throw core::InputError(fmt::format("{}: {} bytes, it had {} a moment ago: the file is being changed",
                                       document.path.string(), file_->text().size(), document.file_bytes));
  }
}

std::vector<Document> find_documents(const std::vector<fs::path>& inputs, const fs::path& output,
                                     const Message& message) {
  std::vector<Document> documents;
  for (const auto& input : inputs) {
    core::StopSignals::check();
    if (!fs::is_directory(input)) {
      add_file(input, documents, message);  // says so when there is no such file
      continue;
    }
    for (const auto& file : files_below(input, output)) {
      core::StopSignals::check();
      add_file(file, documents, message);
    }
  }
  if (documents.empty()) {
    throw core::InputError(fmt::format("no text found in {}{}: expected files of UTF-8 text",
                                       inputs.empty() ? "no input at all" : inputs.front().string(),
                                       inputs.size() > 1 ? " and the other inputs" : ""));
  }
  return documents;
}

Split split_documents(const std::vector<Document>& documents, double fraction, std::uint64_t seed) {
  if (fraction <= 0) return {documents, {}};
  if (documents.size() == 1) {
    const Document& whole = documents.front();
    const auto wanted = static_cast<std::size_t>(std::llround(static_cast<double>(whole.bytes) * fraction));
    const std::size_t cut = tail_begin(DocumentText(whole).text(), std::max<std::size_t>(wanted, 1));
    if (cut == 0 || cut == whole.bytes) return {documents, {}};
    Document train = whole;
    Document val = whole;
    train.bytes = cut;
    val.begin = cut;
    val.bytes = whole.bytes - cut;
    return {{std::move(train)}, {std::move(val)}};
  }
  const auto smaller = [](const Document& a, const Document& b) { return a.bytes < b.bytes; };
  double total = 0;
  for (const auto& document : documents) total += static_cast<double>(document.bytes);
  const double budget = total * fraction;
  std::vector<bool> is_val(documents.size(), false);
  double taken = 0;
  std::size_t count = 0;
  const auto most = static_cast<std::size_t>(std::lround(static_cast<double>(documents.size()) * fraction));
  for (std::size_t i = 0; i < documents.size() && count < std::min(most, documents.size() - 1); ++i) {
    const auto pick = static_cast<std::size_t>(core::shuffled(i, documents.size(), seed, 0));
    const auto bytes = static_cast<double>(documents[pick].bytes);
    if (taken + bytes > budget) continue;
    is_val[pick] = true;
    taken += bytes;
    ++count;
  }
  if (count == 0) {
    const auto smallest = std::min_element(documents.begin(), documents.end(), smaller);
    is_val[static_cast<std::size_t>(smallest - documents.begin())] = true;
  }
  Split split;
  for (std::size_t i = 0; i < documents.size(); ++i)
    (is_val[i] ? split.val : split.train).push_back(documents[i]);
  return split;
}

}  // namespace rooflm::text
