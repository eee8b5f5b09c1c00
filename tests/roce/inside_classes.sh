#!/usr/bin/env bash
# What classes_test.py runs inside each of its two machines: two flows over RDMA at once, in one class and then in two.
#
#   inside_classes.sh RANK ADDRESS GATEWAY PEER WEFT PLUGIN
#
# What each flow was like goes to /run/share, PHASE.FLOW.json; both ranks write PHASE.end when it is over.
set -euo pipefail
rank=$1 address=$2 gateway=$3 peer=$4 weft=$5 plugin=$6
share=/run/share
first=$address
if ((rank == 1)); then first=$peer; fi

bash "$(dirname "${BASH_SOURCE[0]}")/inside_network.sh" "$address" "$gateway"
export WEFT_RUN_DIR='' NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO

# flow PHASE NAME TRAFFIC_CLASS PORT ITERATIONS
flow() {
  NCCL_IB_TC=$3 "$weft" perf --transport rdma --plugin "$plugin" --output json --collective sendrecv --bytes 64KiB:64KiB --messages 32 \
    --iterations "$5" --warmup 1 --rank "$rank" --world 2 --rendezvous "$first:$4" --timeout 90s >"$share/$1.$2.json" 2>"$share/$1.$2.log"
}

flow one raised 0 9001 3 &
one=$!
flow one other 0 9002 3
wait "$one"
touch "$share/one.end"
flow two raised 104 9003 9 &
two=$!
flow two other 0 9004 3
wait "$two"
touch "$share/two.end"
