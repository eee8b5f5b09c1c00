// What the runtime's and the driver's entries share.
#pragma once

#include <cstddef>

namespace weft::cuda_stand_in {

/// Queues a kernel on a stream. `arguments` are copied. The kernels are those of the library that WEFT_NCCL_KERNELS names
/// (tests/nccl/kernels/entry.h). Returns false where there is none.
bool Launch(unsigned blocks, const void* arguments, size_t bytes, void* stream);

/// Queues a record of the event.
void RecordOn(void* event, void* stream);

/// What a device answers, by CUDA's number of the attribute, which runtime and driver have in common.
int AttributeOf(int attribute);

}  // namespace weft::cuda_stand_in
