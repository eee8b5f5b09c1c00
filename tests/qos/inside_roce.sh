#!/usr/bin/env bash
# What roce_test.py runs inside the machine: two RDMA devices (rdma_rxe), a controller, an agent, and rping over rdma_cm before, during
# and after; what each program said and a capture of each rping go to /run/share.
#
#   inside_roce.sh TESTBED_FOLDER BIN_FOLDER
set -euo pipefail
testbed=$1 bin=$2
share=/run/share
for module in configfs rdma_ucm; do modprobe -d "$WEFT_KERNEL_ROOT" "$module"; done
mount -t configfs configfs /sys/kernel/config
bash "$testbed/roce_pair" up

# wait_line FILE: until a file has a whole line.
wait_line() { until [[ -s $1 ]] && grep -q '}' "$1"; do sleep 0.05; done; }

cat >/tmp/controller.yaml <<'YAML'
version: 1
qos: {roce_tos: 104}
classes: [26, 0]
YAML
"$bin/weft-controller" --config /tmp/controller.yaml --listen 127.0.0.1:7070 --http 127.0.0.1:0 \
  >/tmp/controller.out 2>"$share/controller.log" &
controller=$!
wait_line /tmp/controller.out
mkdir -p /tmp/run
printf 'version: 1\nqos: apply\n' >/tmp/agent.yaml
"$bin/weft-agent" --config /tmp/agent.yaml --host h1 --run-dir /tmp/run --controller 127.0.0.1:7070 --interfaces rdma0,rdma1 \
  >/tmp/agent.out 2>"$share/agent.log" &
agent=$!
wait_line /tmp/agent.out

# weft_qos NAME ARGUMENT...: NAME.out, NAME.err and NAME.status.
weft_qos() {
  local name=$1 status=0
  shift
  "$bin/weft" qos "$@" >"$share/$name.out" 2>"$share/$name.err" || status=$?
  echo "$status" >"$share/$name.status"
}
# tos DEVICE: what the kernel itself says. The agent has the folder too for as long as it reads.
tos() {
  local folder=/sys/kernel/config/rdma_cm/$1
  mkdir "$folder" 2>/dev/null || true
  cat "$folder/ports/1/default_roce_tos"
  rmdir "$folder" 2>/dev/null || true
}
# pings NAME: rping between the two devices, captured; the kernel's settings of both devices in NAME.tos.
pings() {
  local server capture
  tcpdump -i rdma0 --immediate-mode -B 16384 -s 128 -w "/tmp/$1.pcap" udp port 4791 2>"$share/$1.tcpdump" &
  capture=$!
  until grep -q listening "$share/$1.tcpdump"; do sleep 0.05; done
  rping -s -a 10.0.0.2 -C 5 >"$share/$1.server" 2>&1 &
  server=$!
  for ((i = 0; i < 20; ++i)); do  # until the server listens
    timeout 30 rping -c -a 10.0.0.2 -I 10.0.0.1 -C 5 >"$share/$1.client" 2>&1 && break
    sleep 0.5
  done
  wait "$server" || true
  sleep 0.3
  kill -INT "$capture"
  wait "$capture" || true
  cp "/tmp/$1.pcap" "$share/"
  echo "$(tos rxe0) $(tos rxe1)" >"$share/$1.tos"
}
# until_named SETTING COUNT: waits until that many ports have the drift; the seconds that it took in named.seconds.
until_named() {
  local began=$EPOCHREALTIME
  for ((i = 0; i < 400; ++i)); do
    weft_qos named verify
    if (($(grep -c ": $1: " "$share/named.out" || true) == $2)); then break; fi
    sleep 0.1
  done
  echo "$began $EPOCHREALTIME" >>"$share/named.seconds"
}

until_named roce-tos 2
cp "$share/named.out" "$share/wrong.out"
pings before
weft_qos dry apply --dry-run
echo "$(tos rxe0) $(tos rxe1)" >"$share/dry.tos"
weft_qos apply apply
weft_qos good verify
pings applied
# Somebody sets a class that nobody declared.
mkdir /sys/kernel/config/rdma_cm/rxe0 2>/dev/null || true
echo 40 >/sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_tos
rmdir /sys/kernel/config/rdma_cm/rxe0 2>/dev/null || true
until_named roce-tos 1
cp "$share/named.out" "$share/other.out"
weft_qos revert revert
pings reverted
kill "$agent" "$controller"
wait "$agent" "$controller" || true
