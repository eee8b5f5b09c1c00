#!/usr/bin/env bash
# What loop_test.py runs inside each of its two machines: an agent, and the ranks that files in /run/share ask for.
#
#   inside_loop.sh RANK ADDRESS GATEWAY CONTROLLER WEFT PLUGIN
#
# JOB.start holds a rank's arguments, after variables of its environment; JOB.stop ends it; its output is in JOB.out and JOB.log. The file `end` ends it all.
set -euo pipefail
rank=$1 address=$2 gateway=$3 controller=$4 bin=$(dirname "$5") plugin=$6
share=/run/share

bash "$(dirname "${BASH_SOURCE[0]}")/inside_network.sh" "$address" "$gateway"
export WEFT_RUN_DIR=/run/weft NCCL_SOCKET_IFNAME="=eth0" NCCL_DEBUG=INFO
mkdir -p "$WEFT_RUN_DIR"
"$bin/weft-agent" --host "h$((rank + 1))" --controller "$controller" --interfaces eth0 --run-dir "$WEFT_RUN_DIR" --http 127.0.0.1:9464 \
  >"$share/agent.log" 2>&1 &

[[ -e /dev/fd ]] || ln -s /proc/self/fd /dev/fd
stamped() { while IFS= read -r line; do echo "$EPOCHREALTIME $line"; done; }

declare -A ranks
until [[ -e $share/end ]]; do
  for start in "$share"/*.start; do
    name=$(basename "$start" .start)
    [[ -e $start && -z ${ranks[$name]-} ]] || continue
    read -ra arguments <"$start"
    variables=()
    while [[ ${arguments[0]} == [A-Z]*=* ]]; do
      variables+=("${arguments[0]}")
      arguments=("${arguments[@]:1}")
    done
    env "${variables[@]}" "$bin/weft-replay" --job "$name" --rank "$rank" --world 2 --plugin "$plugin" "${arguments[@]}" >"$share/$name.out" 2> >(stamped >"$share/$name.log") &
    ranks[$name]=$!
  done
  for stop in "$share"/*.stop; do
    name=$(basename "$stop" .stop)
    [[ -e $stop && -n ${ranks[$name]-} && ${ranks[$name]} != ended ]] || continue
    kill -9 "${ranks[$name]}"
    ranks[$name]=ended
  done
  sleep 0.2
done
