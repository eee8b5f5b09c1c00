#include "collectives/reduce.h"

#include "common/check.h"

namespace weft::collectives {
namespace {

// __restrict lets the compiler vectorise without a check for overlap.
template <typename T>
void Add(T* __restrict destination, const T* __restrict source, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] += source[i];
}

template <typename T>
void TakeLarger(T* __restrict destination, const T* __restrict source, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = destination[i] < source[i] ? source[i] : destination[i];
}

template <typename Summed, typename Compared>
void Reduce(ReduceOperation operation, void* destination, const void* source, int64_t elements) {
  if (operation == ReduceOperation::kSum) {
    Add(static_cast<Summed*>(destination), static_cast<const Summed*>(source), elements);
  } else {
    TakeLarger(static_cast<Compared*>(destination), static_cast<const Compared*>(source), elements);
  }
}

}  // namespace

void ReduceInto(DataType type, ReduceOperation operation, void* destination, const void* source, int64_t elements) {
  switch (type) {
    case DataType::kFloat32: return Reduce<float, float>(operation, destination, source, elements);
    case DataType::kFloat64: return Reduce<double, double>(operation, destination, source, elements);
    case DataType::kInt32:  // sums as unsigned, where wrapping is defined
      return Reduce<uint32_t, int32_t>(operation, destination, source, elements);
    case DataType::kByte:
      WEFT_CHECK(false, "bytes are not summed");
  }
}

}  // namespace weft::collectives
