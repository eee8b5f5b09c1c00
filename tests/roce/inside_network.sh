#!/usr/bin/env bash
# The network card of a machine that a test has started, and an RDMA device over it.
#
#   inside_network.sh ADDRESS GATEWAY
set -euo pipefail
ip addr add "$1/24" dev eth0
ip link set eth0 up
ip route add default via "$2"
rdma link add rxe0 type rxe netdev eth0
# The kernel sees the carrier a moment after the card was switched on.
until [[ $(</sys/class/net/eth0/operstate) == up ]] && grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do
  sleep 0.1
done
