#include "collectives/reduce.h"

namespace weft::collectives {
namespace {

// __restrict lets the compiler vectorise without a check for overlap.
template <typename T>
void Add(T* __restrict destination, const T* __restrict source, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] += source[i];
}

}  // namespace

void AddInto(DataType type, void* destination, const void* source, int64_t elements) {
  switch (type) {
    case DataType::kFloat32:
      return Add(static_cast<float*>(destination), static_cast<const float*>(source), elements);
    case DataType::kInt32:  // as unsigned, where wrapping is defined
      return Add(static_cast<uint32_t*>(destination), static_cast<const uint32_t*>(source), elements);
  }
}

}  // namespace weft::collectives
