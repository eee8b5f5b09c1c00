#include "tests/nccl/kernels/reduction.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace weft::nccl_test {
namespace {

/// The type in which `T` is computed: itself, or float for the short ones.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
Wide<T> Widen(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

/// Integers overflow as on a GPU: modulo 2^bits.
template <class T>
auto Unsigned(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return value;
  }
}

template <class T>
T Load(const char* from) {
  T value;
  std::memcpy(static_cast<void*>(&value), from, sizeof value);
  return value;
}

template <class T>
T Argument(uint64_t argument) {
  T value;
  std::memcpy(static_cast<void*>(&value), &argument, sizeof value);
  return value;
}

/// `into` = f(into, from), element by element.
template <class T, class F>
void ForEach(char* into, const char* from, size_t bytes, const F& f) {
  for (size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    const T made = static_cast<T>(f(Load<T>(into + i), Load<T>(from + i)));
    std::memcpy(into + i, static_cast<const void*>(&made), sizeof made);
  }
}

template <class T>
void Add(uint64_t, char* into, const char* from, size_t bytes) {
  ForEach<T>(into, from, bytes, [](T a, T b) { return static_cast<T>(Unsigned(Widen(a)) + Unsigned(Widen(b))); });
}

template <class T>
void Multiply(uint64_t, char* into, const char* from, size_t bytes) {
  ForEach<T>(into, from, bytes, [](T a, T b) { return static_cast<T>(Unsigned(Widen(a)) * Unsigned(Widen(b))); });
}

/// Integers: the smaller of both as NCCL compares them, unsigned after an exclusive or with the argument. Floats: the
/// argument's lowest bit chooses.
template <class T>
void Least(uint64_t argument, char* into, const char* from, size_t bytes) {
  if constexpr (std::is_integral_v<T>) {
    const auto mask = static_cast<std::make_unsigned_t<T>>(argument);
    ForEach<T>(into, from, bytes, [mask](T a, T b) {
      using U = std::make_unsigned_t<T>;
      return (static_cast<U>(a) ^ mask) < (static_cast<U>(b) ^ mask) ? a : b;
    });
  } else {
    const bool least = (argument & 1) == 0;
    ForEach<T>(into, from, bytes, [least](T a, T b) { return (Widen(a) < Widen(b)) == least ? a : b; });
  }
}

template <class T>
void Scale(uint64_t argument, char* data, size_t bytes) {
  const auto factor = Widen(Argument<T>(argument));
  ForEach<T>(data, data, bytes, [factor](T a, T) { return static_cast<T>(Unsigned(Widen(a)) * Unsigned(factor)); });
}

template <class T>
void Divide(uint64_t argument, char* data, size_t bytes) {
  if constexpr (std::is_integral_v<T>) {
    const Division division = DivisionOf<T>(argument);
    ForEach<T>(data, data, bytes, [division](T a, T) {
      if (division.is_signed) {
        return static_cast<T>(static_cast<int64_t>(static_cast<std::make_signed_t<T>>(a)) / division.divisor);
      }
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) / static_cast<uint64_t>(division.divisor));
    });
  }
}

struct Functions {
  size_t size;
  void (*add)(uint64_t, char*, const char*, size_t);
  void (*multiply)(uint64_t, char*, const char*, size_t);
  void (*least)(uint64_t, char*, const char*, size_t);
  void (*scale)(uint64_t, char*, size_t);
  void (*divide)(uint64_t, char*, size_t);
};

template <class T>
Functions Of() {
  return {sizeof(T), Add<T>, Multiply<T>, Least<T>, Scale<T>, Divide<T>};
}

Functions FunctionsOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return Of<int8_t>();
    case ncclUint8: return Of<uint8_t>();
    case ncclInt32: return Of<int32_t>();
    case ncclUint32: return Of<uint32_t>();
    case ncclInt64: return Of<int64_t>();
    case ncclUint64: return Of<uint64_t>();
    case ncclFloat16: return Of<__half>();
    case ncclFloat32: return Of<float>();
    case ncclFloat64: return Of<double>();
    case ncclBfloat16: return Of<__nv_bfloat16>();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    case ncclFloat8e4m3: return Of<__nv_fp8_e4m3>();
    case ncclFloat8e5m2: return Of<__nv_fp8_e5m2>();
#endif
    default: break;
  }
  std::fprintf(stderr, "nccl kernels: data type %d is not known\n", static_cast<int>(type));
  std::abort();
}

}  // namespace

Reduction::Reduction(ncclDevRedOp_t op, ncclDataType_t type, uint64_t argument) : argument_(argument) {
  const Functions functions = FunctionsOf(type);
  size_ = functions.size;
  combine_ = functions.add;
  if (op == ncclDevProd) combine_ = functions.multiply;
  if (op == ncclDevMinMax) combine_ = functions.least;
  if (op == ncclDevPreMulSum) prepare_ = functions.scale;
  if (op == ncclDevSumPostDiv) finish_ = functions.divide;
}

}  // namespace weft::nccl_test
