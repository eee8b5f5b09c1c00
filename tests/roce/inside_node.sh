#!/usr/bin/env bash
# What two_machines_test.py runs inside each of its two machines: one rank over the machine's own network card.
#
#   inside_node.sh RANK ADDRESS GATEWAY RENDEZVOUS WEFT PLUGIN
set -euo pipefail
rank=$1 address=$2 gateway=$3 rendezvous=$4 weft=$5 plugin=$6

ip addr add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
rdma link add rxe0 type rxe netdev eth0
# The kernel sees the carrier a moment after the card was switched on.
until [[ $(</sys/class/net/eth0/operstate) == up ]] && grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do
  sleep 0.1
done
export WEFT_RUN_DIR='' NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO NCCL_IB_TC=104 NCCL_IB_QPS_PER_CONNECTION=8
"$weft" perf --transport rdma --plugin "$plugin" --output json --check --collective allreduce --bytes 2MiB \
  --iterations 2 --warmup 0 --rank "$rank" --world 2 --rendezvous "$rendezvous" --timeout 90s \
  >/run/share/answer.json 2>/run/share/log
