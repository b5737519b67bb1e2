// The stream's file in a process that does as it likes with descriptors.
#include "inject/stream_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "foreign/recorded.h"

namespace rooflm::inject {
namespace {

namespace fs = std::filesystem;

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("rooflm-streams-" + std::to_string(::getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<StreamWriter> create(const char* name = "a.stream") {
    std::string why;
    auto writer = StreamWriter::create(folder_ / name, ~std::uint64_t{0}, why);
    EXPECT_NE(writer, nullptr) << why;
    return writer;
  }
  static void add(StreamWriter& writer, int count) {
    for (int i = 0; i < count; ++i) {
      const auto time = static_cast<std::uint64_t>(1'000'000 + i);
      writer.add({.kind = RowKind::range,
                  .name = writer.text("r"),
                  .start_ns = time,
                  .end_ns = time + 1,
                  .place = 1});
    }
  }

  fs::path folder_;
};

TEST_F(Streams, AFileOfTheProgramByTheSameNumberIsLeftAlone) {
  const auto writer = create();
  add(*writer, 3);
  writer->flush();
  // Whatever number it has: the program closes it, and has files of its own by all of these.
  std::vector<int> files;
  for (int number = 3; number < 1024; ++number) {
    if (fs::exists("/proc/self/fd/" + std::to_string(number)) &&
        fs::read_symlink("/proc/self/fd/" + std::to_string(number)) == folder_ / "a.stream") {
      ::close(number);
      const int file = ::open((folder_ / "program").c_str(), O_RDWR | O_CREAT, 0644);
      ASSERT_GE(file, 0);
      files.push_back(::dup2(file, number));
      if (file != number) ::close(file);
    }
  }
  ASSERT_EQ(files.size(), 1U);
  add(*writer, 4);
  writer->end();
  EXPECT_EQ(fs::file_size(folder_ / "program"), 0U);
  EXPECT_EQ(foreign::read_stream(folder_ / "a.stream").run.activities().size(), 7U);
  EXPECT_TRUE(foreign::read_stream(folder_ / "a.stream").has_ended);
  EXPECT_NE(::fcntl(files.front(), F_GETFD), -1);
  ::close(files.front());
}

TEST_F(Streams, AFileThatIsGoneIsNoOthers) {
  const auto writer = create();
  add(*writer, 3);
  writer->flush();
  fs::rename(folder_ / "a.stream", folder_ / "b.stream");
  std::ofstream(folder_ / "a.stream") << "mine";
  ::close_range(3, ~0U, 0);
  add(*writer, 4);
  writer->end();
  EXPECT_EQ(fs::file_size(folder_ / "a.stream"), 4U);
  EXPECT_TRUE(writer->is_full());
}

TEST_F(Streams, TheSystemsLimitOfFilesEndsTheStreamNotTheProgram) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto writer = create();
    const rlimit most{.rlim_cur = 4096, .rlim_max = 4096};
    ::setrlimit(RLIMIT_FSIZE, &most);
    add(*writer, 10);
    writer->flush();
    add(*writer, 1000);
    writer->end();
    ::_exit(writer->is_full() ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  foreign::RecordedProcess read = foreign::read_stream(folder_ / "a.stream");
  EXPECT_EQ(read.run.activities().size(), 10U);
  EXPECT_NE(read.problem.find("File too large"), std::string::npos) << read.problem;
}

}  // namespace
}  // namespace rooflm::inject
