// NVTX as programs call it: through tables like those of its header, whose functions the library takes over.
#include "inject/nvtx.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "foreign/recorded.h"
#include "inject/session.h"

namespace rooflm::inject {
namespace {

constexpr std::size_t kCalls = 17;
std::array<nvtx::Function, kCalls> core_functions{};
std::array<nvtx::Function, kCalls> domain_functions{};
std::array<nvtx::Function*, kCalls> core_places{};
std::array<nvtx::Function*, kCalls> domain_places{};

int module_table(int module, nvtx::FunctionTable* table, unsigned* size) {
  if (module != nvtx::kCore && module != nvtx::kCore2) return 0;
  *table = module == nvtx::kCore ? core_places.data() : domain_places.data();
  *size = kCalls;
  return 1;
}

const void* export_table(std::uint32_t table) {
  static const nvtx::Callbacks kCallbacks{.bytes = sizeof(nvtx::Callbacks), .module_table = module_table};
  return table == nvtx::kCallbacksTable ? &kCallbacks : nullptr;
}

template <class Call>
Call core(nvtx::CoreCall call) {
  return reinterpret_cast<Call>(core_functions.at(call));
}
template <class Call>
Call domain(nvtx::Core2Call call) {
  return reinterpret_cast<Call>(domain_functions.at(call));
}

std::map<std::string, int> range_counts(foreign::RecordedProcess& process) {
  std::map<std::string, int> counts;
  for (const record::Activity& activity : process.run.activities()) {
    ++counts[process.run.name_of(activity).text + activity.extra];
  }
  return counts;
}

// One process has one session: everything that a program does with ranges is here.
TEST(Nvtx, RangesMarksAndDomainsAreRecorded) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("rooflm-nvtx-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  ASSERT_EQ(::setenv(kFolderVariable, folder.c_str(), 1), 0);
  for (std::size_t i = 0; i < kCalls; ++i) {
    core_places.at(i) = &core_functions.at(i);
    domain_places.at(i) = &domain_functions.at(i);
  }
  Session* session = Session::begin();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(take_nvtx(export_table));

  EXPECT_EQ(core<int (*)(const char*)>(nvtx::kRangePushA)("outer"), 0);
  EXPECT_EQ(core<int (*)(const char*)>(nvtx::kRangePushA)("inner"), 1);
  const void* nccl = domain<const void* (*)(const char*)>(nvtx::kDomainCreateA)("NCCL");
  const void* text =
      domain<const void* (*)(const void*, const char*)>(nvtx::kDomainRegisterStringA)(nccl, "all_reduce");
  nvtx::Event event{};
  event.size = sizeof(nvtx::Event);
  event.message_type = nvtx::kRegistered;
  event.message.registered = text;
  event.payload_type = nvtx::kInt64;
  event.payload.signed_whole = -5;
  EXPECT_EQ(domain<int (*)(const void*, const nvtx::Event*)>(nvtx::kDomainRangePushEx)(nccl, &event), 0)
      << "a domain has a stack of its own";
  core<int (*)()>(nvtx::kRangePop)();  // "inner", although the domain's is open
  domain<int (*)(const void*)>(nvtx::kDomainRangePop)(nccl);
  core<int (*)()>(nvtx::kRangePop)();
  core<int (*)()>(nvtx::kRangePop)();  // one too many
  const auto number = core<std::uint64_t (*)(const wchar_t*)>(nvtx::kRangeStartW)(L"wide");
  core<void (*)(std::uint64_t)>(nvtx::kRangeEnd)(number);
  core<void (*)(std::uint64_t)>(nvtx::kRangeEnd)(number);  // again
  core<void (*)(const char*)>(nvtx::kMarkA)("here");
  event = {};
  event.size = 8;  // of a header that is older than messages
  core<void (*)(const nvtx::Event*)>(nvtx::kMarkEx)(&event);
  struct {
    std::uint64_t communicator = 0x7f, bytes = 4096;
    int op = 0;
  } moved;
  const auto push_payload = [&](std::uint64_t schema, const void* data, std::size_t bytes) {
    const nvtx::ExtendedPayload payload{
        .schema = nvtx::kFirstOwnSchema + schema, .bytes = bytes, .data = data};
    nvtx::Event named{};
    named.size = sizeof(nvtx::Event);
    named.message_type = nvtx::kNarrow;
    named.message.narrow = "ncclAllReduce";
    named.payload_type = nvtx::kExtended;
    named.reserved = 1;
    named.payload.whole = reinterpret_cast<std::uint64_t>(&payload);
    domain<int (*)(const void*, const nvtx::Event*)>(nvtx::kDomainRangePushEx)(nccl, &named);
    domain<int (*)(const void*)>(nvtx::kDomainRangePop)(nccl);
  };
  push_payload(5, &moved, sizeof(moved));
  push_payload(5, &moved.bytes, 16);         // before 2.26: no communicator
  push_payload(0, &moved, sizeof(moved));    // of ncclCommInitRank
  push_payload(5, &moved, ~std::size_t{0});  // a size that is not said
  push_payload(5, nullptr, sizeof(moved));
  session->end();

  fs::path stream;
  for (const auto& entry : fs::directory_iterator(folder)) stream = entry.path();
  foreign::RecordedProcess process = foreign::read_stream(stream);
  auto counts = range_counts(process);
  EXPECT_EQ(counts["outer"], 1);
  EXPECT_EQ(counts["inner"], 1);
  EXPECT_EQ(counts["NCCL:all_reduce{\"payload\":-5}"], 1);
  EXPECT_EQ(counts[R"(NCCL:ncclAllReduce{"bytes":4096,"communicator":"7f"})"], 1);
  EXPECT_EQ(counts[R"(NCCL:ncclAllReduce{"bytes":4096})"], 1);
  EXPECT_EQ(counts["NCCL:ncclAllReduce"], 3);
  EXPECT_EQ(counts["wide"], 1);
  EXPECT_EQ(counts["here"], 1);
  EXPECT_EQ(counts["range"], 1);
  EXPECT_TRUE(process.has_ended);
  EXPECT_FALSE(process.has_device);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace rooflm::inject
