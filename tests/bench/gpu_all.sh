#!/bin/sh
# Everything that a CUDA card must show, in one table: build/gpu/table.md. Without a card, nvcc and
# NCCL, it is a dry run on the stand-in, at sizes that it can compute.
#   gpu_all.sh [OUTPUT FOLDER]
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
export PATH
preset=cuda-host
tests=
if [ "$(sh common/scripts/cuda_card.sh)" = yes ]; then
  preset=cuda
  [ ! -d tests/cuda ] || tests=tests_on_card
fi
if [ $preset = cuda-host ] && nvidia-smi -L >/dev/null 2>&1; then
  echo "gpu_all.sh: this machine has a card, but not all that it takes to use it: put nvcc into" \
    "PATH, and NCCL's header nccl.h into CUDA's include folder, /usr/include or" \
    "/usr/local/include" >&2
  exit 1
fi
INSTALL=${INSTALL:-yes} sh common/scripts/install.sh build course
cmake --preset $preset --log-level=NOTICE >/dev/null
cmake --build build/$preset --target unshard_train bench_cuda_rates $tests
exec python3 tests/bench/gpu_all.py build/$preset/bin "${1:-build/gpu}"
