// torchrun, the environment and NCCL: what depends on hosts and links, and what a program wants of the environment.
#include <fmt/format.h>

#include <algorithm>

#include "formats/emit/writers.h"

namespace weft::formats {

Result<std::string> EmitTorchrun(const EmitRequest& request) {
  const int64_t gpus = planner::GpuCount(request.strategy);
  const int64_t per_host = std::min(gpus, request.cluster.GpusPerHost());
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
      PlanSummary(request), OperatorComments(request), gpus / per_host, per_host);
}

Result<std::string> EmitEnvironment(const EmitRequest& request) {
  std::string text = fmt::format("# {}\n# For every rank, besides NCCL's own settings.\n", PlanSummary(request));
  for (const planner::EnvironmentSetting& setting :
       planner::EnvironmentOf(request.framework, {request.job, request.cluster, request.strategy})) {
    text += fmt::format("# {}\n{}={}\n", setting.why, setting.name, setting.value);
  }
  return text;
}

Result<std::string> EmitNccl(const EmitRequest& request) {
  const planner::Strategy& s = request.strategy;
  std::string text = fmt::format("# {}\n", PlanSummary(request));
  if (planner::GpuCount(s) <= request.cluster.gpus_per_node) {
    return text + "# All GPUs share one node: no network plugin is needed.\nNCCL_NET_PLUGIN=none\n";
  }
  text += "# Where Weft runs on every host: libnccl-net-weft.so. It has not run under NCCL on GPUs yet (README, 'What has run on\n"
          "# what'): try it on two hosts, then take away the '#'.\n#NCCL_NET_PLUGIN=weft\n";
  if (request.cluster.gpus_per_node % (s.tp * s.cp) == 0) {
    text += "# tp and cp stay inside a node, so that peers across nodes sit on the same rail.\nNCCL_CROSS_NIC=0\n";
  }
  if (s.ep > 1 && s.ep * s.etp > request.cluster.gpus_per_node) {
    text += "# The all-to-all of experts crosses nodes: gather it at the NIC's own GPU first.\nNCCL_PXN_DISABLE=0\n";
  }
  return text + "# NCCL_IB_TC and NCCL_IB_SL stay unset: they would override the class of each communicator.\n";
}

}  // namespace weft::formats
