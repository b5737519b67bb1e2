// Shards: llm.c's bytes exactly, files beyond 2 GiB, damaged and foreign ones.
#include "text/shard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/text/data_testing.h"

namespace rooflm::text {
namespace {

std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::string bytes(kShardHeaderBytes, '\0');
  const std::int32_t words[] = {magic, version, count};
  std::memcpy(bytes.data(), words, sizeof words);
  return bytes;
}

TEST(Shard, BytesAreLlmCs) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_text(write_shard(folder / "a.bin", {1, 0x1234, 65535})),
            header(20240520, 1, 3) + std::string("\x01\x00\x34\x12\xff\xff", 6));
  EXPECT_EQ(read_text(write_shard(folder / "b.bin", {1, 0x12345}, TokenWidth::u32)),
            header(20240801, 7, 2) + std::string("\x01\x00\x00\x00\x45\x23\x01\x00", 8));
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_EQ(width_for(50257), TokenWidth::u16);
  EXPECT_EQ(width_for(65536), TokenWidth::u16);
  EXPECT_EQ(width_for(65537), TokenWidth::u32);
}

TEST(Shard, RoundTrip) {
  const TemporaryFolder folder;
  std::vector<std::uint32_t> tokens(700001);
  std::iota(tokens.begin(), tokens.end(), 0U);
  for (const auto width : {TokenWidth::u16, TokenWidth::u32}) {
    if (width == TokenWidth::u16) {
      for (auto& token : tokens) token %= 50257;
    }
    const Shard shard(write_shard(folder / "s.bin", tokens, width));
    ASSERT_EQ(shard.size(), tokens.size());
    EXPECT_EQ(shard.width(), width);
    std::vector<std::int32_t> read(tokens.size() - 5);
    shard.read(5, read);
    EXPECT_TRUE(std::equal(read.begin(), read.end(), tokens.begin() + 5));
    expect_error<core::InputError>([&] { shard.read(6, read); }, {"s.bin", "700001"});
  }
}

TEST(Shard, BeyondTwoGibibytes) {
  const TemporaryFolder folder;
  const std::int32_t count = 1'500'000'000;  // 3 GB of uint16, of which a few are written
  const auto path = write_text(folder / "large.bin", header(20240520, 1, count));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(kShardHeaderBytes) + 2LL * (count - 3));
    file.write("\x07\x00\x08\x00\x09\x00", 6);
  }
  const Shard shard(path);
  ASSERT_EQ(shard.size(), static_cast<std::uint64_t>(count));
  std::vector<std::int32_t> last(4);
  shard.read(shard.size() - 4, last);
  EXPECT_EQ(last, (std::vector<std::int32_t>{0, 7, 8, 9}));
}

TEST(Shard, DamagedFilesAreNamedWithPlaceAndExpectation) {
  const TemporaryFolder folder;
  const auto expect_bad = [&](const std::string& bytes, std::initializer_list<std::string_view> words) {
    const auto path = write_text(folder / "bad.bin", bytes);
    expect_error<core::InputError>([&] { const Shard shard(path); }, {"bad.bin"});
    expect_error<core::InputError>([&] { const Shard shard(path); }, words);
  };
  expect_bad("", {"0 bytes", "1024"});
  expect_bad(std::string(1023, 'x'), {"1023 bytes", "1024"});
  expect_bad(std::string(4000, 'x'), {"word 0", "20240520", "20240801"});
  expect_bad(header(20240520, 2, 0), {"word 1", "version 2", "expected 1"});
  expect_bad(header(20240801, 1, 0), {"word 1", "version 1", "expected 7"});
  expect_bad(header(20240520, 1, -1), {"word 2", "-1"});
  expect_bad(header(20240520, 1, 3) + "12345", {"3 tokens", "1030 bytes", "1029", "truncated"});
  expect_bad(header(20240520, 1, 3) + "1234567", {"3 tokens", "1030 bytes", "1031"});
  expect_error<core::InputError>([&] { const Shard shard(folder / "none.bin"); },
                                 {"none.bin", "No such file"});
  expect_error<core::InputError>([&] { const Shard shard(folder.path()); }, {"directory"});
}

TEST(ShardWriter, NothingIsLeftWithoutFinish) {
  const TemporaryFolder folder;
  write_shard(folder / "a.bin", {1, 2, 3});
  const auto before = read_text(folder / "a.bin");
  {
    ShardWriter writer(folder / "a.bin", TokenWidth::u16);
    writer.append(std::vector<std::uint32_t>(2'000'000, 7));
    EXPECT_EQ(writer.size(), 2'000'000U);
    expect_error<core::InputError>([&] { writer.append(std::vector<std::uint32_t>{65536}); },
                                   {"a.bin", "65536"});
  }
  EXPECT_EQ(folder.files(), std::vector<std::string>{"a.bin"});
  EXPECT_EQ(read_text(folder / "a.bin"), before);
  expect_error<core::InputError>([&] { ShardWriter(folder / "none" / "a.bin", TokenWidth::u16); },
                                 {"none/a.bin"});
}

}  // namespace
}  // namespace rooflm::text
