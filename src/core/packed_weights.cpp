// Weights in fewer bits: codes, and scales by which they are multiplied.
#include "core/packed_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/dynamic_8bit.h"
#include "core/elements.h"

namespace rooflm::core {
namespace {

constexpr std::int64_t kInt4Group = 128, kNf4Block = 64, kSparseUnit = 16;
constexpr float kFp8Largest = F8E4M3::kLargest;

const Dynamic8Bit kCodesOfScales(true);

std::int64_t groups_of(std::int64_t count, std::int64_t group) { return (count + group - 1) / group; }

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The code of the nearest value; of two, of the lower.
unsigned nf4_code(float x) {
  unsigned code = 0;
  for (std::size_t i = 0; i < 15; ++i)
    code += static_cast<unsigned>(x > (kNf4Values[i] + kNf4Values[i + 1]) / 2);
  return code;
}

void put_nibble(std::uint8_t* codes, std::int64_t at, unsigned code) {
  const unsigned byte = codes[at / 2];
  codes[at / 2] =
      static_cast<std::uint8_t>(at % 2 == 0 ? (byte & 0xf0U) | code : (byte & 0x0fU) | code << 4U);
}
unsigned nibble(const std::uint8_t* codes, std::int64_t at) { return codes[at / 2] >> (at % 2 * 4) & 15U; }

void store(std::byte* plane, std::int64_t at, float value) {
  std::memcpy(plane + at * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
}
float load(const std::byte* plane, std::int64_t at) {
  float value = 0;
  std::memcpy(&value, plane + at * static_cast<std::int64_t>(sizeof value), sizeof value);
  return value;
}

/// The scales of nf4, packed a second time, as bitsandbytes does: less their mean, by the largest of 256.
void pack_scales(std::span<const float> scales, std::uint8_t* codes, std::byte* second) {
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  constexpr std::size_t kOfFile = kFileScaleGroup / kNf4Block, kOurs = kScaleGroup / kNf4Block;
  for (std::size_t first = 0; first < scales.size(); first += kOfFile) {
    const auto part = scales.subspan(first, std::min(kOfFile, scales.size() - first));
    float largest = 0;
    for (const float scale : part) largest = std::max(largest, std::abs(scale - mean));
    for (std::size_t i = 0; i < part.size(); ++i)
      codes[first + i] = kCodesOfScales.code(largest > 0 ? (part[i] - mean) / largest : 0);
    for (std::size_t i = 0; i < part.size(); i += kOurs) {
      const auto at = static_cast<std::int64_t>((first + i) / kOurs);
      store(second, 2 * at, largest);
      store(second, 2 * at + 1, mean);
    }
  }
}

void pack_nf4(std::span<const float> values, std::byte* to) {
  auto* codes = reinterpret_cast<std::uint8_t*>(to);
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = groups_of(count, kNf4Block);
  std::vector<float> scales(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto block = values.subspan(static_cast<std::size_t>(i * kNf4Block), kNf4Block);
    const float largest = largest_of(block);
    scales[static_cast<std::size_t>(i)] = largest;
    for (std::int64_t k = 0; k < kNf4Block; ++k)
      put_nibble(codes, i * kNf4Block + k,
                 nf4_code(largest > 0 ? block[static_cast<std::size_t>(k)] / largest : 0));
  }
  pack_scales(scales, codes + count / 2, to + count / 2 + blocks);
}

/// Which two of four are kept, as bits.
unsigned kept_of(const float* four) {
  std::array<int, 4> order{0, 1, 2, 3};
  std::ranges::stable_sort(order, [&](int a, int b) { return std::abs(four[a]) > std::abs(four[b]); });
  return 1U << static_cast<unsigned>(order[0]) | 1U << static_cast<unsigned>(order[1]);
}

void pack_sparse(std::span<const float> values, std::byte* to) {
  const auto count = static_cast<std::int64_t>(values.size());
  auto* bits = reinterpret_cast<std::uint8_t*>(to + count);  // after count / 2 numbers of 2 bytes
#pragma omp parallel for schedule(static)
  for (std::int64_t unit = 0; unit < count; unit += kSparseUnit) {
    for (std::int64_t i = unit; i < unit + kSparseUnit; i += 4) {
      const float* four = &values[static_cast<std::size_t>(i)];
      const unsigned which = kept_of(four);
      put_nibble(bits, i / 4, which);
      std::int64_t kept = i / 2;
      for (unsigned k = 0; k < 4; ++k) {
        if ((which >> k & 1U) == 0) continue;
        const Bf16 value(four[k]);
        std::memcpy(to + 2 * kept++, &value, sizeof value);
      }
    }
  }
}

}  // namespace

const float* const kScaleCodes = kCodesOfScales.values().data();

DType dtype_of(WeightFormat format) {
  constexpr std::array kDTypesOf{DType::f32, DType::bf16,     DType::int8,  DType::int4,
                                 DType::nf4, DType::fp8_rows, DType::sparse};
  return kDTypesOf.at(static_cast<std::size_t>(format));
}

std::int64_t packed_group(DType dtype, std::int64_t width) {
  switch (dtype) {
    case DType::int4:
      return kInt4Group;
    case DType::nf4:
      return kNf4Block;
    case DType::sparse:
      return kSparseUnit;
    default:
      return width;
  }
}

std::string why_not_packed(DType dtype, std::int64_t rows, std::int64_t width) {
  const std::int64_t group = std::max(kSparseUnit, is_packed(dtype) ? packed_group(dtype, 0) : 0);
  if (width % group != 0)
    return fmt::format("rows of {} are no multiple of {}, as {} needs them", width, group, name_of(dtype));
  if (dtype == DType::nf4 && rows * width % kScaleGroup != 0) {
    return fmt::format("{} x {} numbers are no multiple of {}, as {} needs them", rows, width, kScaleGroup,
                       name_of(dtype));
  }
  return "";
}

std::int64_t packed_bytes(DType dtype, std::int64_t count, std::int64_t width) {
  const std::int64_t codes = PackedMatrix{.dtype = dtype, .rows = count / width, .width = width}.code_bytes();
  switch (dtype) {
    case DType::nf4:
      return codes + groups_of(count, kNf4Block) + groups_of(count, kScaleGroup) * 8;
    case DType::sparse:
      return codes + count / 8;
    default:
      return codes + count / packed_group(dtype, width) * 4;
  }
}

std::int64_t PackedMatrix::code_bytes() const {
  return dtype == DType::int4 || dtype == DType::nf4 ? count() / 2 : count();
}

const float* PackedMatrix::second_scales() const {
  return reinterpret_cast<const float*>(scales() + groups_of(count(), kNf4Block));
}

float PackedMatrix::scale(std::int64_t index) const {
  if (dtype != DType::nf4) return load(scales(), index);
  const auto code = std::to_integer<std::uint8_t>(scales()[index]);
  const std::int64_t group = index * kNf4Block / kScaleGroup;
  const std::byte* second = scales() + groups_of(count(), kNf4Block);
  return kCodesOfScales.value(code) * load(second, 2 * group) + load(second, 2 * group + 1);
}

void PackedMatrix::unpack(std::int64_t row, std::int64_t first, std::int64_t count, float* to) const {
  const std::int64_t at = row * width + first;
  if (dtype == DType::sparse) {
    const auto* bits = reinterpret_cast<const std::uint8_t*>(scales());
    std::int64_t kept = at / 2;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_kept = (nibble(bits, (at + i) / 4) >> (at + i) % 4 & 1U) != 0;
      Bf16 value;
      if (is_kept) std::memcpy(&value, data + 2 * kept++, sizeof value);
      to[i] = is_kept ? static_cast<float>(value) : 0.0F;
    }
    return;
  }
  const std::int64_t group = packed_group(dtype, width);
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t end = std::min(count, ((at + i) / group + 1) * group - at);
    const float factor = scale((at + i) / group);
    for (; i < end; ++i) {
      switch (dtype) {
        case DType::int8:
          to[i] = factor * static_cast<float>(codes()[at + i] - 128);
          break;
        case DType::int4:
          to[i] = factor * static_cast<float>(static_cast<int>(nibble(codes(), at + i)) - 8);
          break;
        case DType::nf4:
          to[i] = factor * kNf4Values[nibble(codes(), at + i)];
          break;
        default: {
          F8E4M3 value;
          value.bits = codes()[at + i];
          to[i] = factor * static_cast<float>(value);
        }
      }
    }
  }
}

float integer_scale(DType dtype, float largest) {
  return largest > 0 ? largest / (dtype == DType::int8 ? 127.5F : 7.5F) : 1.0F;
}

int integer_code(DType dtype, float value, float scale) {
  const float most = dtype == DType::int8 ? 127 : 7;
  return static_cast<int>(std::clamp(std::nearbyint(value / scale), -most - 1, most));
}

void pack(DType dtype, std::int64_t rows, std::int64_t width, std::span<const float> values, std::byte* to) {
  if (dtype == DType::nf4) return pack_nf4(values, to);
  if (dtype == DType::sparse) return pack_sparse(values, to);
  auto* codes = reinterpret_cast<std::uint8_t*>(to);
  const std::int64_t group = packed_group(dtype, width);
  std::byte* scales = to + PackedMatrix{.dtype = dtype, .rows = rows, .width = width}.code_bytes();
#pragma omp parallel for schedule(static)
  for (std::int64_t g = 0; g < rows * width / group; ++g) {
    const auto part = values.subspan(static_cast<std::size_t>(g * group), static_cast<std::size_t>(group));
    const float largest = largest_of(part);
    const float scale = dtype != DType::fp8_rows ? integer_scale(dtype, largest)
                        : largest > 0            ? largest / kFp8Largest
                                                 : 1.0F;
    store(scales, g, scale);
    for (std::int64_t i = 0; i < group; ++i) {
      const float value = part[static_cast<std::size_t>(i)];
      const std::int64_t at = g * group + i;
      if (dtype == DType::fp8_rows) {
        codes[at] = F8E4M3(value / scale).bits;
      } else if (dtype == DType::int8) {
        codes[at] = static_cast<std::uint8_t>(integer_code(dtype, value, scale) + 128);
      } else {
        put_nibble(codes, at, static_cast<unsigned>(integer_code(dtype, value, scale) + 8));
      }
    }
  }
}

void prune_2_of_4(std::span<float> values) {
  for (std::size_t i = 0; i + 4 <= values.size(); i += 4) {
    const unsigned kept = kept_of(&values[i]);
    for (unsigned k = 0; k < 4; ++k)
      if ((kept >> k & 1U) == 0) values[i + k] = 0;
  }
}

}  // namespace rooflm::core
