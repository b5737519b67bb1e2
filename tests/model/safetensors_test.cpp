// safetensors files: round trips, conversion, sharding, and every way in which a file can be wrong.
#include "model/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/f16.h"

namespace rooflm::model {
namespace {

namespace fs = std::filesystem;
using core::DType;
using testing::IsSubstring;

class Safetensors : public testing::Test {
 protected:
  Safetensors() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ =
        fs::temp_directory_path() / (std::string("rooflm_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(directory_);
  }
  ~Safetensors() override { fs::remove_all(directory_); }

  /// A file with this header and `data_bytes` zeros.
  fs::path file_with(const std::string& header, std::size_t data_bytes) const {
    const std::uint64_t length = header.size();
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    return file_of(bytes + header + std::string(data_bytes, '\0'));
  }
  fs::path file_of(const std::string& bytes) const {
    const auto path = directory_ / "model.safetensors";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  /// The message with which opening the file fails.
  static std::string message_of(const fs::path& path) {
    try {
      const SafetensorsFile file(path);
    } catch (const core::InputError& error) {
      EXPECT_PRED_FORMAT2(IsSubstring, path.string(), error.what());
      return error.what();
    }
    return "no error";
  }
  std::string error_of(const std::string& header, std::size_t data_bytes) const {
    return message_of(file_with(header, data_bytes));
  }

  fs::path directory_;
};

TensorSource source(const std::string& name, const core::Shape& shape, const std::vector<float>& values,
                    DType dtype = DType::f32) {
  return {name, dtype, shape, [=](const core::ByteSink& sink) { write_floats(sink, values, dtype); }};
}

std::vector<float> floats_of(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  read_floats(tensor, values);
  return values;
}

TEST_F(Safetensors, RoundTripInEveryDtype) {
  const std::vector<float> values = {0.0F, -1.5F, 3.0F, 0.25F, 1e3F, -0.0F};  // exact in all of them
  const auto path = directory_ / "a.safetensors";
  write_safetensors(path,
                    {source("bf16", {3, 2}, values, DType::bf16), source("f32", {6}, values),
                     source("f16", {2, 3}, values, DType::f16), source("f64", {1, 6}, values, DType::f64),
                     source("scalar", {}, {7.0F}), source("empty", {0, 4}, {})});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_EQ(file.tensors().size(), 6U);
  for (const char* name : {"bf16", "f32", "f16", "f64"}) {
    const auto read = floats_of(file.at(name));
    EXPECT_EQ(std::memcmp(read.data(), values.data(), sizeof(float) * values.size()), 0) << name;
  }
  EXPECT_EQ(file.at("bf16").shape, (core::Shape{3, 2}));
  EXPECT_EQ(floats_of(file.at("scalar")), std::vector<float>{7.0F});
  EXPECT_EQ(file.at("empty").shape, (core::Shape{0, 4}));
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_THROW(static_cast<void>(file.at("absent")), core::InputError);
}

TEST_F(Safetensors, DoublesStayExact) {
  const double third = 1.0 / 3.0;
  const auto path = directory_ / "a.safetensors";
  write_safetensors(path, {{"x", DType::f64, {1}, [&](const core::ByteSink& sink) {
                              sink(std::as_bytes(std::span(&third, 1)));
                            }}});
  double read = 0;
  read_doubles(SafetensorsFile(path).at("x"), {&read, 1});
  EXPECT_EQ(read, third);
}

TEST_F(Safetensors, HalfRoundsToNearestEven) {
  EXPECT_EQ(core::F16(1.0F + 0x1p-11F).bits, core::F16(1.0F).bits);      // tie, to even
  EXPECT_EQ(core::F16(1.0F + 0x3p-11F).bits, core::F16(1.0F).bits + 2);  // tie, to even
  EXPECT_EQ(core::F16(65519.0F).bits, 0x7bff);                           // rounds down to the largest
  EXPECT_EQ(core::F16(65520.0F).bits, 0x7c00);                           // rounds up to infinity
  EXPECT_EQ(core::F16(0x1p-24F).bits, 1);                                // smallest denormal
  EXPECT_EQ(core::F16(0x1p-25F).bits, 0);                                // tie, to even
  EXPECT_EQ(core::F16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(static_cast<float>(core::F16(std::numeric_limits<float>::quiet_NaN()))));
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    core::F16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(core::F16(value).bits, bits);
  }
}

TEST_F(Safetensors, ShardsAndIndex) {
  const std::vector<TensorSource> tensors = {source("a", {2}, {1, 2}), source("b", {3}, {3, 4, 5}),
                                             source("c", {1}, {6})};
  write_safetensors_directory(directory_, tensors);
  EXPECT_EQ(open_safetensors_directory(directory_).size(), 1U);
  write_safetensors_directory(directory_, tensors, 16);  // a and b do not fit together, b and c do
  EXPECT_FALSE(fs::exists(directory_ / "model.safetensors"));
  const auto files = open_safetensors_directory(directory_);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].path().filename(), "model-00001-of-00002.safetensors");
  EXPECT_EQ(floats_of(files[0].at("a")), (std::vector<float>{1, 2}));
  EXPECT_EQ(floats_of(files[1].at("b")), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(floats_of(files[1].at("c")), std::vector<float>{6});

  // A shard that holds what the index does not know.
  write_safetensors(files[1].path(), {tensors[1], tensors[2], source("d", {1}, {7})});
  EXPECT_THROW(open_safetensors_directory(directory_), core::InputError);
  // A shard that lacks what the index places there.
  write_safetensors(files[1].path(), {tensors[1]});
  EXPECT_THROW(open_safetensors_directory(directory_), core::InputError);
}

TEST_F(Safetensors, IndexDoesNotLeaveItsDirectory) {
  std::ofstream(directory_ / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "../x.safetensors"}})";
  EXPECT_THROW(open_safetensors_directory(directory_), core::InputError);
  std::ofstream(directory_ / "model.safetensors.index.json") << R"({"weight_map": {}})";
  EXPECT_THROW(open_safetensors_directory(directory_), core::InputError);
  std::ofstream(directory_ / "model.safetensors.index.json") << "{";
  EXPECT_THROW(open_safetensors_directory(directory_), core::InputError);
  fs::remove(directory_ / "model.safetensors.index.json");
  EXPECT_THROW(open_safetensors_directory(directory_), core::InputError);
}

TEST_F(Safetensors, EveryTruncationIsNoticed) {
  const auto path = directory_ / "model.safetensors";
  write_safetensors(path, {source("a", {2, 2}, {1, 2, 3, 4}), source("b", {1}, {5})});
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(SafetensorsFile(file_of(whole.substr(0, length))), core::InputError) << length;
  }
  EXPECT_THROW(SafetensorsFile(file_of(whole + "x")), core::InputError);
  EXPECT_NO_THROW(SafetensorsFile(file_of(whole)));
}

TEST_F(Safetensors, ForeignFiles) {
  EXPECT_PRED_FORMAT2(IsSubstring, "is this a safetensors file",
                      message_of(file_of("PK\3\4 a zip archive of PyTorch")));
  EXPECT_PRED_FORMAT2(IsSubstring, "0 bytes are too short", message_of(file_of("")));
  EXPECT_PRED_FORMAT2(IsSubstring, "not valid JSON", error_of("{\"a\": 1", 0));
  EXPECT_PRED_FORMAT2(IsSubstring, "not a JSON object", error_of("[]", 0));
  EXPECT_PRED_FORMAT2(IsSubstring, "too large", error_of(R"({"a": 1e999})", 0));
  EXPECT_PRED_FORMAT2(IsSubstring, "No such file", message_of(directory_ / "absent.safetensors"));
}

TEST_F(Safetensors, BrokenHeaders) {
  const auto one = [](const std::string& entry) { return R"({"w": )" + entry + "}"; };
  EXPECT_PRED_FORMAT2(IsSubstring, "tensor w is not a JSON object", error_of(one("3"), 0));
  EXPECT_PRED_FORMAT2(IsSubstring, "tensor w has no dtype",
                      error_of(one(R"({"shape":[1],"data_offsets":[0,4]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "'F33'",
                      error_of(one(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "shape that is not a list of non-negative integers",
                      error_of(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "shape",
                      error_of(one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "has 1 data_offsets, expected 2",
                      error_of(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "ends at byte 0 before it begins at 4",
                      error_of(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "ends at byte 8 of the data, the file holds 4",
                      error_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "F32 [3] needs 12 bytes, the file gives it 8",
                      error_of(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8));
  EXPECT_PRED_FORMAT2(
      IsSubstring, "impossible shape",
      error_of(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), 0));
  EXPECT_PRED_FORMAT2(IsSubstring, "__metadata__", error_of(R"({"__metadata__": {"a": 1}})", 0));
}

TEST_F(Safetensors, GapsOverlapsAndDuplicates) {
  const auto two = [](const char* second, const char* name = "b") {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},")" + std::string(name) +
           R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(error_of(two("[4,8]"), 8), "no error");
  EXPECT_PRED_FORMAT2(IsSubstring, "there is a gap", error_of(two("[8,12]"), 12));
  EXPECT_PRED_FORMAT2(IsSubstring, "tensors overlap", error_of(two("[2,6]"), 6));
  EXPECT_PRED_FORMAT2(IsSubstring, "tensors overlap", error_of(two("[0,4]"), 4));
  EXPECT_PRED_FORMAT2(IsSubstring, "end at byte 8 of the data, the file holds 9", error_of(two("[4,8]"), 9));
  EXPECT_PRED_FORMAT2(IsSubstring, "names a twice", error_of(two("[4,8]", "a"), 8));
}

TEST_F(Safetensors, IntegersAreNotFloats) {
  const SafetensorsFile file(file_with(R"({"w":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  std::vector<float> values(1);
  EXPECT_THROW(read_floats(file.at("w"), values), core::InputError);
}

TEST_F(Safetensors, FailedWriteLeavesTheOldFile) {
  const auto path = directory_ / "model.safetensors";
  write_safetensors(path, {source("a", {1}, {1})});
  auto broken = source("a", {1}, {2});
  broken.write = [](const core::ByteSink&) { throw core::InputError("disk on fire"); };
  EXPECT_THROW(write_safetensors(path, {broken}), core::InputError);
  EXPECT_EQ(floats_of(SafetensorsFile(path).at("a")), std::vector<float>{1});
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
  EXPECT_THROW(write_safetensors_directory("/proc/nowhere", {}), core::InputError);
}

}  // namespace
}  // namespace rooflm::model
