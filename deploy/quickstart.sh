#!/usr/bin/env bash
# Installs what is missing, builds Weft, and runs its main job: `weft demo` (docs/demo.md says what it shows).
# Arguments go to the demo, e.g. --duration 90s --output json.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"

bash deploy/install_packages.sh
echo "build: configuring" >&2
mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
echo "build: compiling (the first time takes some minutes)" >&2
cmake --build build/release --target weft_demo_programs >&2
exec build/release/bin/weft demo "$@"
