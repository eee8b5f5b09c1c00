// torchrun and NCCL: what depends on hosts and links only.
#include <fmt/format.h>

#include <algorithm>

#include "formats/emit/writers.h"

namespace weft::formats {

Result<std::string> EmitTorchrun(const EmitInput& input) {
  const int64_t gpus = planner::GpuCount(input.strategy);
  const int64_t per_host = std::min(gpus, input.cluster.GpusPerHost());
  if (gpus % per_host != 0) {
    return CannotEmit(EmitTarget::kTorchrun,
                      fmt::format("{} GPUs on hosts of {}, expected whole hosts", gpus, per_host));
  }
  return fmt::format(
      "# {}\n{}"
      "# On every host, with MASTER_ADDR the name of one of them; behind it your script and its arguments.\n"
      "torchrun --nnodes={} --nproc-per-node={} --max-restarts=0 \\\n"
      "  --rdzv-id=\"${{JOB_ID:-weft}}\" --rdzv-backend=c10d --rdzv-endpoint=\"${{MASTER_ADDR:?}}:${{MASTER_PORT:-29500}}\" \\\n"
      "  \"$@\"\n",
      PlanSummary(input), OperatorComments(input), gpus / per_host, per_host);
}

Result<std::string> EmitNccl(const EmitInput& input) {
  const planner::Strategy& s = input.strategy;
  std::string text = fmt::format("# {}\n", PlanSummary(input));
  if (planner::GpuCount(s) <= input.cluster.gpus_per_node) {
    return text + "# All GPUs share one node: no network plugin is needed.\nNCCL_NET_PLUGIN=none\n";
  }
  text += "# libnccl-net-weft.so; without it NCCL falls back to its own transport.\nNCCL_NET_PLUGIN=weft\n";
  if (input.cluster.gpus_per_node % (s.tp * s.cp) == 0) {
    text += "# tp and cp stay inside a node, so that peers across nodes sit on the same rail.\nNCCL_CROSS_NIC=0\n";
  }
  if (s.ep > 1 && s.ep * s.etp > input.cluster.gpus_per_node) {
    text += "# The all-to-all of experts crosses nodes: gather it at the NIC's own GPU first.\nNCCL_PXN_DISABLE=0\n";
  }
  return text + "# NCCL_IB_TC and NCCL_IB_SL stay unset: they would override the class of each communicator.\n";
}

}  // namespace weft::formats
