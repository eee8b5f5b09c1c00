// NCCL's own headers, read where a build of NCCL lies, and what differs between its releases (2.23 to 2.30).
//
// The kernels below follow what NCCL's device code does with connections, works and flags. Their structures are NCCL's, so
// that a layout that changes is met by the compiler; names that changed are given one name here.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "collectives.h"
#include "device.h"

namespace weft::nccl_test {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
using DeviceComm = ncclKernelComm;
using DeviceCommAndChannels = ncclKernelCommAndChannels;
#else
using DeviceComm = ncclDevComm;
using DeviceCommAndChannels = ncclDevCommAndChannels;
#endif

/// What an average of integers divides its sum by.
struct Division {
  int64_t divisor = 1;
  bool is_signed = false;
};

/// Of the argument that NCCL hands to the device for an operation on `T`.
template <class T>
Division DivisionOf(uint64_t argument) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
  return {static_cast<int64_t>(argument >> 1), (argument & 1) != 0};
#else
  return {static_cast<int64_t>(argument), std::is_signed_v<T>};
#endif
}

/// The part of a PAT operation that NCCL's own schedule hands out.
struct PatStep {
  int receive_dim = -1, send_dim = -1;        ///< 2^dim ranks away; -1: none
  int receive_offset = 0, send_offset = 0;    ///< elements into the step's buffer
  int step_offset = 0;
  bool post_receive = false, post_send = false;
  int elements = 0;
  size_t input = 0, output = 0;               ///< elements into the user's buffers
  bool last = false;
};

/// NCCL's schedule of PAT, `Algorithm` being its PatRSAlgorithm or PatAGAlgorithm of a type.
template <class Algorithm, class Element>
class PatSchedule {
 public:
  PatSchedule(size_t chunk, size_t offset, size_t end, size_t count, int rank, int ranks)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)
      : algorithm_(static_cast<int>(chunk * sizeof(Element)), NCCL_STEPS, kWorkers, offset, end, count,
                   static_cast<int>(chunk), rank, ranks) {
  }

  PatStep Next() {
    ncclPatStep step{};
    do {
      step = {};
      algorithm_.getNextOp(&step);
    } while ((step.flags & PatSkipped) != 0 && step.last != 2);
    if ((step.flags & PatSkipped) != 0) return {.last = true};
    return {step.recvDim,       step.sendDim,       step.recvOffset, step.sendOffset, step.stepOffset,
            step.postRecv != 0, step.postSend != 0, step.nelem,      step.inpIx,      step.outIx,
            step.last == 2};
  }

 private:
  static constexpr int kWorkers = 1;  // no operations side by side, so that one thread can follow
#else
      : algorithm_(static_cast<int>(chunk * sizeof(Element)), NCCL_STEPS, offset, end, count, static_cast<int>(chunk), rank,
                   ranks) {
  }

  PatStep Next() {
    PatStep step;
    int post_receive = 0, post_send = 0, last = 0;
    algorithm_.getNextOp(step.receive_dim, step.send_dim, step.input, step.output, step.receive_offset, step.send_offset,
                         step.step_offset, step.elements, post_receive, post_send, last);
    step.post_receive = post_receive != 0;
    step.post_send = post_send != 0;
    step.last = last != 0;
    return step;
  }

 private:
#endif
  Algorithm algorithm_;
};

}  // namespace weft::nccl_test
