#!/usr/bin/env bash
# What perftest_test.py runs inside each of its two machines: perftest and Weft's transport in turns, over the machine's own network card.
#
#   inside_perftest.sh RANK ADDRESS GATEWAY PEER ROUNDS WEFT PLUGIN
#
# Rank 0 sends; its figures go to /run/share, a file per round, kind, size and program.
set -euo pipefail
rank=$1 address=$2 gateway=$3 peer=$4 rounds=$5 weft=$6 plugin=$7
share=/run/share
here=$(dirname "${BASH_SOURCE[0]}")
port=18600

bash "$here/inside_network.sh" "$address" "$gateway"
export WEFT_RUN_DIR='' NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=WARN

# other PROGRAM BYTES OPTION...: perftest; rank 1 is its server, which listens a moment later than the client may ask.
other() {
  local program=$1 bytes=$2 tries
  shift 2
  port=$((port + 1))
  if ((rank == 1)); then
    timeout 120 "$program" -d rxe0 -x 1 -F -p "$port" -s "$bytes" "$@" >/dev/null
    return
  fi
  for ((tries = 0; tries < 100; ++tries)); do
    if timeout 120 "$program" -d rxe0 -x 1 -F -p "$port" -s "$bytes" "$@" "$peer" >"$share/out" 2>"$share/log"; then return; fi
    grep -qi "connect" "$share/log" "$share/out" || return 1
    sleep 0.2
  done
  return 1
}

# ours BYTES OPTION...: the same with Weft's transport; rank 0 is the first of the pair.
ours() {
  local bytes=$1 first=$address
  shift
  port=$((port + 1))
  if ((rank == 1)); then first=$peer; fi
  timeout 120 "$weft" perf --transport rdma --plugin "$plugin" --output json --collective sendrecv --bytes "${bytes}B" --rank "$rank" \
    --world 2 --rendezvous "$first:$port" --timeout 60s "$@" >"$share/out" 2>"$share/log"
}

# Packets of the device so far: sent, received.
packets() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/{sent_pkts,rcvd_pkts} | tr '\n' ' '; }

keep() {
  if ((rank == 0)); then
    mv "$share/out" "$share/$1"
    echo "$before $(packets)" >"$share/$1.packets"
  fi
  before=$(packets)
}

before=$(packets)

for ((round = 0; round < rounds; ++round)); do
  for bytes in 65536 1048576; do
    count=$((16777216 / bytes))
    other ib_send_bw "$bytes" -n "$count" -t 16 -r 32
    keep "$round.bandwidth.$bytes.perftest"
    ours "$bytes" --messages "$count" --iterations 1 --warmup 0
    keep "$round.bandwidth.$bytes.weft"
  done
  for bytes in 8 4096; do
    other ib_send_lat "$bytes" -n 400
    keep "$round.latency.$bytes.perftest"
    # Receives are posted ahead, as perftest and NCCL do; the median is of means of 20.
    ours "$bytes" --ping-pong --messages 20 --iterations 20 --warmup 1
    keep "$round.latency.$bytes.weft"
  done
done
