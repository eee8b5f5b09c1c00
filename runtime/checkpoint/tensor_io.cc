#include "runtime/checkpoint/tensor_io.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

namespace weft::runtime {
namespace {

using formats::StoredType;

constexpr int64_t kBufferBytes = int64_t{4} << 20;

uint64_t BitsAt(const std::byte* at, int64_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(bytes));
  return bits;
}

double ValueOf(uint64_t bits, StoredType type) {
  switch (type) {
    case StoredType::kFloat64: {
      double value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case StoredType::kBfloat16:
      bits <<= 16;
      [[fallthrough]];
    case StoredType::kFloat32: {
      float value;
      const auto low = static_cast<uint32_t>(bits);
      std::memcpy(&value, &low, sizeof value);
      return value;
    }
    case StoredType::kFloat16: {
      const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
      const double sign = (bits & 0x8000) != 0 ? -1 : 1;
      if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
      return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
    }
    case StoredType::kOther:
      break;
  }
  return NAN;
}

/// What of a box is in a tensor of a file: rows and columns of the file, and the memory that they stand for.
struct Window {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  int64_t width = 1;            ///< of the file's tensor
  std::byte* memory = nullptr;  ///< of the first element
  int64_t down = 0, right = 0;  ///< bytes to the next row's and column's
};

/// Elements of one of its rows.
int64_t WidthOf(const std::vector<int64_t>& shape) {
  int64_t width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  return width;
}

std::optional<Window> WindowOf(const RankState& state, size_t part, const planner::HeldBox& held, const TensorPlace& place) {
  planner::TensorBox of_file = held.box;
  of_file.row = place.part.row, of_file.rows = place.part.rows;
  const std::optional<planner::TensorBox> common = planner::CommonBox(held.box, of_file);
  if (!common) return std::nullopt;
  const planner::HeldBox here = planner::PartOfHeld(held, *common);
  const int64_t element = planner::BytesOf(state.type);
  const bool transposed = place.part.transposed;
  Window w{.row = common->row - place.part.row,
           .rows = common->rows,
           .column = common->column,
           .columns = common->columns,
           .width = WidthOf(place.stored.shape),
           .memory = static_cast<std::byte*>(state.units[static_cast<size_t>(here.unit)].parts[part]) + here.offset * element,
           .down = here.stride * element,
           .right = element};
  if (transposed) {
    std::swap(w.row, w.column), std::swap(w.rows, w.columns), std::swap(w.down, w.right);
  }
  return w;
}

/// Runs of the file that hold the window, each some rows: body(first row of the window, rows, byte in the file, bytes).
template <typename Body>
Status ForRuns(const Window& w, const TensorPlace& place, Body body) {
  const int64_t element = formats::BytesOf(place.stored.type);
  const bool dense = w.columns == w.width && place.file_row.empty();
  const int64_t most = dense ? std::max<int64_t>(1, kBufferBytes / (w.width * element)) : 1;
  for (int64_t r = 0; r < w.rows; r += most) {
    const int64_t rows = std::min(most, w.rows - r);
    const int64_t row = place.file_row.empty() ? w.row + r : place.file_row[static_cast<size_t>(w.row + r)];
    const int64_t at = place.stored.begin + (row * w.width + w.column) * element;
    WEFT_RETURN_IF_ERROR(body(r, rows, at, rows * w.columns * element));
  }
  return Ok();
}

Status Broken(const TensorPlace& place, int64_t index) {
  return Fail(Code::kDataLoss, fmt::format("{}: element {} of {} is no finite number", *place.path, index, place.stored.name));
}

Status Pwrite(const TensorPlace& place, const std::byte* data, int64_t bytes, int64_t at) {
  while (bytes > 0) {
    const ssize_t done = ::pwrite(place.descriptor, data, static_cast<size_t>(bytes), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Fail(ErrnoError(fmt::format("write {}", *place.path), errno));
    data += done, bytes -= done, at += done;
  }
  return Ok();
}

Status Pread(const TensorPlace& place, std::byte* data, int64_t bytes, int64_t at) {
  while (bytes > 0) {
    const ssize_t done = ::pread(place.descriptor, data, static_cast<size_t>(bytes), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Fail(ErrnoError(fmt::format("read {}", *place.path), errno));
    if (done == 0)
      return Fail(Code::kInvalidArgument, fmt::format("{}: ends at byte {}, within {}", *place.path, at, place.stored.name));
    data += done, bytes -= done, at += done;
  }
  return Ok();
}

}  // namespace

uint64_t MixedElement(int64_t index, uint64_t bits) {
  // SplitMix64's finaliser over both.
  uint64_t x = bits ^ (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Status WriteBox(const RankState& state, size_t part, const planner::HeldBox& held, const TensorPlace& place, uint64_t* sum) {
  const std::optional<Window> window = WindowOf(state, part, held, place);
  if (!window) return Ok();
  const Window& w = *window;
  const int64_t element = formats::BytesOf(place.stored.type);
  std::vector<std::byte> buffer;
  return ForRuns(w, place, [&](int64_t first, int64_t rows, int64_t at, int64_t bytes) -> Status {
    buffer.resize(static_cast<size_t>(bytes));
    std::byte* to = buffer.data();
    for (int64_t r = first; r < first + rows; ++r) {
      for (int64_t c = 0; c < w.columns; ++c, to += element) {
        std::memcpy(to, w.memory + r * w.down + c * w.right, static_cast<size_t>(element));
        const uint64_t bits = BitsAt(to, element);
        const int64_t index = (w.row + r) * w.width + w.column + c;
        if (!std::isfinite(ValueOf(bits, place.stored.type))) return Broken(place, index);
        *sum += MixedElement(index, bits);
      }
    }
    return Pwrite(place, buffer.data(), bytes, at);
  });
}

Status ReadBox(const RankState& state, size_t part, const planner::HeldBox& held, const TensorPlace& place, uint64_t* sum) {
  const std::optional<Window> window = WindowOf(state, part, held, place);
  if (!window) return Ok();
  const Window& w = *window;
  const int64_t element = formats::BytesOf(place.stored.type);
  std::vector<std::byte> buffer;
  return ForRuns(w, place, [&](int64_t first, int64_t rows, int64_t at, int64_t bytes) -> Status {
    buffer.resize(static_cast<size_t>(bytes));
    WEFT_RETURN_IF_ERROR(Pread(place, buffer.data(), bytes, at));
    const std::byte* from = buffer.data();
    for (int64_t r = first; r < first + rows; ++r) {
      for (int64_t c = 0; c < w.columns; ++c, from += element) {
        const uint64_t bits = BitsAt(from, element);
        const int64_t index = (w.row + r) * w.width + w.column + c;
        const double value = ValueOf(bits, place.stored.type);
        if (!std::isfinite(value)) return Broken(place, index);
        *sum += MixedElement(index, bits);
        std::byte* const to = w.memory + r * w.down + c * w.right;
        const auto narrow = static_cast<float>(value);
        if (state.type == planner::ElementType::kFloat64) {
          std::memcpy(to, &value, sizeof value);
        } else {
          std::memcpy(to, &narrow, sizeof narrow);
        }
      }
    }
    return Ok();
  });
}

}  // namespace weft::runtime
