// Streams of the injection library, from its own writer: whole ones, cut ones, and ones with lies in them.
#include "foreign/recorded.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "inject/stream_writer.h"

namespace rooflm::foreign {
namespace {

namespace fs = std::filesystem;
using inject::RangeKind;
using inject::Row;
using inject::RowKind;
using inject::StreamWriter;

/// A stream in a file of its own, which goes with it.
class RecordedStream : public testing::Test {
 protected:
  RecordedStream()
      : path_(fs::temp_directory_path() / ("rooflm-stream-" + std::to_string(::getpid()) +
                                           testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove(path_);
    std::string why;
    writer_ = StreamWriter::create(path_.string(), most_bytes_, why);
  }
  ~RecordedStream() override { fs::remove(path_); }

  /// Times count from "now", as the writer's header does.
  Row row(RowKind kind, const char* name, std::uint64_t start, std::uint64_t end, std::uint32_t place) {
    return {.kind = kind,
            .name = writer_->text(name),
            .start_ns = zero_ + start,
            .end_ns = zero_ + end,
            .place = place};
  }
  void add_launch(const char* name, std::uint64_t start, std::uint32_t correlation, std::uint32_t thread) {
    Row call = row(RowKind::api, "cudaLaunchKernel", start, start + 10, thread);
    Row inner = row(RowKind::api, "cuLaunchKernel", start + 2, start + 8, thread);
    Row kernel = row(RowKind::kernel, name, start + 20, start + 50, 7);
    for (Row* one : {&call, &inner, &kernel}) {
      one->correlation = correlation;
      writer_->add(*one);
    }
  }
  [[nodiscard]] static std::size_t count(RecordedProcess& process, const std::string& kind) {
    std::size_t found = 0;
    for (const record::Activity& activity : process.run.activities()) {
      found += process.run.name_of(activity).kind == kind ? 1 : 0;
    }
    return found;
  }

  fs::path path_;
  std::uint64_t most_bytes_ = ~std::uint64_t{0};
  std::uint64_t zero_ = 5'000'000'000;
  std::unique_ptr<StreamWriter> writer_;
};

TEST_F(RecordedStream, WhatWasWrittenIsRead) {
  ASSERT_NE(writer_, nullptr);
  add_launch("gemm", 100, 1, 42);
  Row memory = row(RowKind::memory, "allocate device memory", 10, 10, 0);
  memory.bytes = 4096;
  memory.other = 0x7000;
  writer_->add(memory);
  writer_->fact("command", "prog --fast");
  writer_->fact("thread 42", "loader");
  writer_->count_dropped(3);
  writer_->set_has_device();
  writer_->end();
  RecordedProcess process = read_stream(path_, static_cast<std::int64_t>(zero_));
  EXPECT_EQ(process.process, ::getpid());
  EXPECT_EQ(process.kernels, 1U);
  EXPECT_EQ(process.dropped, 3);
  EXPECT_TRUE(process.has_ended);
  EXPECT_TRUE(process.has_device);
  EXPECT_FALSE(process.is_cut);
  EXPECT_EQ(process.facts.at("command"), "prog --fast");
  EXPECT_EQ(count(process, "api"), 1U) << "the driver's call within that of the runtime says nothing more";
  EXPECT_EQ(count(process, "memory"), 1U);
  EXPECT_EQ(process.run.activities().front().start_ns, 100);
  EXPECT_EQ(process.run.lane(process.run.activities().front().lane).name, "thread 42, loader");
}

TEST_F(RecordedStream, OneThatWasCutKeepsItsWholeRows) {
  for (std::uint32_t i = 0; i < 100; ++i) add_launch("gemm", 100 + 100 * i, 1 + i, 42);
  writer_->flush();
  fs::resize_file(path_, fs::file_size(path_) - 70);
  RecordedProcess process = read_stream(path_);
  EXPECT_TRUE(process.is_cut);
  EXPECT_FALSE(process.has_ended);
  EXPECT_EQ(process.run.activities().size(), 199U);  // two rows went, of which one was an inner call
}

TEST_F(RecordedStream, EveryLengthIsReadWithoutHarm) {
  for (std::uint32_t i = 0; i < 4; ++i) add_launch("gemm", 100 + 100 * i, 1 + i, 42);
  writer_->fact("command", "prog");
  writer_->flush();
  for (std::uintmax_t size = fs::file_size(path_); size-- > sizeof(inject::FileHeader);) {
    fs::resize_file(path_, size);
    EXPECT_NO_THROW(read_stream(path_)) << size;
  }
  fs::resize_file(path_, sizeof(inject::FileHeader) - 1);
  EXPECT_THROW(read_stream(path_), core::InputError);
}

TEST_F(RecordedStream, LiesAreLeftOutAndTheRestIsKept) {
  add_launch("gemm", 100, 1, 42);
  writer_->add(row(RowKind::kernel, "backwards", 900, 800, 7));
  Row far = row(RowKind::kernel, "far", 0, 0, 7);
  far.start_ns = far.end_ns = std::uint64_t{1} << 63U;
  writer_->add(far);
  Row unknown = row(RowKind::kernel, "x", 1000, 1010, 7);
  unknown.kind = static_cast<RowKind>(77);
  writer_->add(unknown);
  Row nameless = row(RowKind::kernel, "x", 1000, 1010, 7);
  nameless.name = 12345;
  writer_->add(nameless);
  writer_->end();
  RecordedProcess process = read_stream(path_);
  EXPECT_EQ(count(process, "kernel"), 2U);
  EXPECT_EQ(process.run.name_of(process.run.activities().back()).text, "unknown");
}

TEST_F(RecordedStream, DamageEndsItWithAWord) {
  add_launch("gemm", 100, 1, 42);
  writer_->flush();
  {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(sizeof(inject::FileHeader));
    file << "nonsense";
  }
  RecordedProcess process = read_stream(path_);
  EXPECT_TRUE(process.is_cut);
  EXPECT_TRUE(process.run.is_empty());
}

TEST_F(RecordedStream, BeyondItsLimitItSaysSoAndKeepsWhatItHas) {
  std::string why;
  fs::remove(path_);
  writer_ = StreamWriter::create(path_.string(), 4096, why);
  ASSERT_NE(writer_, nullptr);
  add_launch("gemm", 100, 1, 42);
  writer_->flush();
  for (std::uint32_t i = 2; i < 500; ++i) add_launch("gemm", 100 * i, i, 42);
  writer_->flush();
  EXPECT_TRUE(writer_->is_full());
  EXPECT_LE(fs::file_size(path_), 4096U);
  const RecordedProcess process = read_stream(path_);
  EXPECT_NE(process.problem.find("--max-size"), std::string::npos);
  EXPECT_EQ(process.kernels, 1U);
}

}  // namespace
}  // namespace rooflm::foreign
