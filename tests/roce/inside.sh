#!/usr/bin/env bash
# What roce_test.py runs inside the machine: every collective over two RDMA devices, what they put on the wire, a cable
# that is pulled, and one that is pulled while each rank has another device. Everything that it finds goes to /run/share.
#
#   inside.sh TESTBED_FOLDER WEFT PLUGIN DEVICE_TEST
set -euo pipefail
testbed=$1 weft=$2 plugin=$3 device_test=$4
share=/run/share
port=9000

bash "$testbed/roce_pair" up
export WEFT_RUN_DIR='' NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO

if "$device_test" --gtest_brief=1 >"$share/device.log" 2>&1; then echo 0 >"$share/device.status"; fi

# perf NAME RANKS ARGUMENT...: even ranks on $even, odd ones on $odd; NAME.json is rank 0's answer, NAME.N.log what
# rank N said, NAME.status the exit statuses.
even='=rxe0' odd='=rxe1'
perf() {
  local name=$1 ranks=$2 rank hca pids=() status=0
  shift 2
  port=$((port + 1))
  for ((rank = ranks - 1; rank >= 0; --rank)); do
    hca=$even
    if ((rank % 2)); then hca=$odd; fi
    NCCL_IB_HCA=$hca timeout 100 "$weft" perf --transport rdma --plugin "$plugin" --output json --check \
      --rank "$rank" --world "$ranks" --rendezvous "127.0.0.1:$port" --timeout 60s "$@" \
      >"$share/$name.$rank.json" 2>"$share/$name.$rank.log" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || status=$?
  done
  echo "$status" >"$share/$name.status"
}

for collective in sendrecv allreduce allgather reducescatter broadcast alltoall; do
  perf "$collective" 2 --collective "$collective" --bytes 32KiB:512KiB --iterations 1 --warmup 0
done

# capture NAME: all RoCEv2 packets of rdma0 until stop_capture.
capture() {
  tcpdump -i rdma0 --immediate-mode -B 16384 -s 128 -w "/tmp/$1.pcap" udp port 4791 2>"$share/$1.tcpdump" &
  capture_pid=$!
  until grep -q listening "$share/$1.tcpdump" || ! kill -0 "$capture_pid"; do :; done
}
stop_capture() {  # NAME
  sleep 0.3  # what it has not read yet
  kill -INT "$capture_pid"
  wait "$capture_pid" || true
  cp "/tmp/$1.pcap" "$share/"
}

capture wire4
NCCL_IB_TC=104 NCCL_IB_FIFO_TC=192 perf wire4 2 --collective allreduce --bytes 512KiB --iterations 1 --warmup 0
stop_capture wire4
# Entry 0 of the table is the device's own link-local address: RoCEv2 over IPv6.
capture wire6
NCCL_IB_TC=40 NCCL_IB_GID_INDEX=0 perf wire6 2 --collective allreduce --bytes 512KiB --iterations 1 --warmup 0
stop_capture wire6

# The cable is down for longer than a queue pair waits: the flows must begin anew when it is back. Which of the
# collective's steps this meets is left to chance; that it met one is seen in the logs.
export NCCL_IB_TIMEOUT=13 NCCL_IB_RETRY_CNT=3
perf link 2 --collective allreduce --bytes 1MiB --iterations 40 --warmup 0 &
perf_pid=$!
until grep -qs connected "$share/link.0.log" && grep -qs connected "$share/link.1.log"; do sleep 0.1; done
bytes_sent() { cat "/sys/class/net/$1/statistics/tx_bytes"; }
# sends_on DEVICE: waits until so many bytes more have left by it, or the ranks have ended.
sends_on() {
  local before
  before=$(bytes_sent "$1")
  until (($(bytes_sent "$1") > before + 1000000)); do
    if ! kill -0 "$perf_pid" 2>/dev/null; then return 1; fi
    sleep 0.05
  done
}
sends_on rdma0
ip link set rdma0 down
sleep 1.5
ip link set rdma0 up
bash "$testbed/roce_pair" routes
wait "$perf_pid"

# Each rank has a second device: the flows go on there while the first cable is down, and come back when it is up again.
bash "$testbed/roce_pair" up 1
even='=rxe0,rxe2' odd='=rxe1,rxe3'
WEFT_RDMA_FAILBACK_S=1 perf failover 2 --collective allreduce --bytes 1MiB --iterations 200 --warmup 0 &
perf_pid=$!
{
  sends_on rdma0 && echo "home"
  ip link set rdma0 down
  sends_on rdma2 && echo "moved"
  ip link set rdma0 up
  bash "$testbed/roce_pair" routes
  sends_on rdma0 && echo "home again"
} >"$share/failover.steps" || true
wait "$perf_pid"
