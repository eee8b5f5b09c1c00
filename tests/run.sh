#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test.
#
#   bash tests/run.sh               all tests on the release build
#   bash tests/run.sh --sanitize    the unit tests under AddressSanitizer + UBSan, then under ThreadSanitizer
#   bash tests/run.sh -- -L fabric  what follows "--" goes to ctest
#
# A test that lacks a capability of the machine (root, network namespaces, QEMU and a kernel package) is skipped and
# named at the end.
# WEFT_REQUIRE=fabric,roce,slurm,prometheus turns such a skip into a failure.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"

sanitize=0
ctest_arguments=()
while (($#)); do
  case $1 in
    --sanitize) sanitize=1 ;;
    --) shift; ctest_arguments=("$@"); break ;;
    *) echo "tests/run.sh: unknown argument \"$1\"; expected --sanitize or -- CTEST_ARGUMENTS" >&2; exit 2 ;;
  esac
  shift
done

bash deploy/install_packages.sh

build() {  # preset, target, extra cmake arguments...
  local preset=$1 target=$2
  shift 2
  mkdir -p build
  cmake --preset "$preset" -DWEFT_BUILD_TESTS=ON "$@" >"build/configure-$preset.log" 2>&1 || {
    cat "build/configure-$preset.log"
    exit 1
  }
  cmake --build "build/$preset" --target "$target"
}

run_tests() {  # preset, ctest arguments...
  local preset=$1 status=0
  shift
  local log="build/$preset/test-output.log"
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --output-log "$log" "$@" </dev/null || status=$?
  local skipped
  skipped=$(grep -hE '^ *[0-9: ]*\[  SKIPPED \] [A-Za-z]|\*\*\*Skipped' "$log" | sort -u || true)
  if [[ -n $skipped ]]; then
    echo "skipped for want of a capability of this machine:"
    echo "$skipped"
  fi
  return "$status"
}

if ((sanitize)); then
  for preset in asan tsan; do
    echo "== $preset"
    build "$preset" weft_unit_tests -DWEFT_REQUIRE_ALL=OFF
    run_tests "$preset" -L unit "${ctest_arguments[@]}"
  done
  exit 0
fi

build release all -DWEFT_REQUIRE_ALL=ON
run_tests release "${ctest_arguments[@]}"
