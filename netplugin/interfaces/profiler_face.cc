// The calls of the ncclProfiler interface on the process's Profiler.
#include "netplugin/interfaces/profiler.h"
#include "netplugin/log.h"
#include "netplugin/process.h"

namespace weft::net {
namespace {

uint64_t ToHandle(const void* event) { return reinterpret_cast<uintptr_t>(event); }

/// The process's profiler; nullptr when the library is being unloaded.
Profiler* Get() {
  Process* process = Process::Get();
  return process ? &process->profiler() : nullptr;
}

}  // namespace

int OpenProfiler(void** context, int* mask, const CommunicatorIdentity& identity, nccl::Logger logger) {
  if (!context || !mask) return nccl::kInvalidArgument;
  *context = nullptr;
  Process& process = Process::Acquire(0, logger, false);
  *context = process.profiler().Open(identity, mask);
  return nccl::kSuccess;
}

int OpenUnnamedProfiler(void** context, int* mask) {
  if (!context || !mask) return nccl::kInvalidArgument;
  *context = nullptr;
  Process& process = Process::Acquire(0, nullptr, false);
  *context = process.profiler().OpenUnnamed(mask);
  return nccl::kSuccess;
}

void NameCommunicator(void* context, const CommunicatorIdentity& identity) {
  if (!context) return;
  auto& opened = *static_cast<Profiler::Context*>(context);
  opened.profiler->Name(opened, identity);
}

int StartProfilerEvent(void* context, void** event, const EventStart& start) {
  if (!event) return nccl::kSuccess;
  *event = nullptr;
  if (!context) return nccl::kSuccess;
  const auto& opened = *static_cast<Profiler::Context*>(context);
  *event = reinterpret_cast<void*>(static_cast<uintptr_t>(opened.profiler->Start(opened, start, NowNs())));
  return nccl::kSuccess;
}

int StopProfilerEvent(void* event) {
  Profiler* profiler = event ? Get() : nullptr;
  if (profiler) profiler->Stop(ToHandle(event), NowNs());
  return nccl::kSuccess;
}

int RecordProfilerState(void* event, int state, nccl::ProfilerStateArgumentsV4* arguments) {
  Profiler* profiler = event ? Get() : nullptr;
  if (!profiler) return nccl::kSuccess;
  const bool timed = state == nccl::kStateKernelChStop && arguments;
  profiler->State(ToHandle(event), state, timed ? arguments->kernel_gpu_ns : 0, NowNs());
  return nccl::kSuccess;
}

int CloseProfiler(void* context) {
  if (!context) return nccl::kSuccess;
  auto* opened = static_cast<Profiler::Context*>(context);
  opened->profiler->Close(opened);
  Process::Release();
  return nccl::kSuccess;
}

}  // namespace weft::net
