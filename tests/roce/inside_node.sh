#!/usr/bin/env bash
# What two_machines_test.py runs inside each of its two machines: one rank over the machine's own network card.
#
#   inside_node.sh RANK ADDRESS GATEWAY RENDEZVOUS WEFT PLUGIN
set -euo pipefail
rank=$1 address=$2 gateway=$3 rendezvous=$4 weft=$5 plugin=$6

bash "$(dirname "${BASH_SOURCE[0]}")/inside_network.sh" "$address" "$gateway"
export WEFT_RUN_DIR='' NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO NCCL_IB_TC=104 NCCL_IB_QPS_PER_CONNECTION=8
"$weft" perf --transport rdma --plugin "$plugin" --output json --check --collective allreduce --bytes 2MiB \
  --iterations 2 --warmup 0 --rank "$rank" --world 2 --rendezvous "$rendezvous" --timeout 90s \
  >/run/share/answer.json 2>/run/share/log
