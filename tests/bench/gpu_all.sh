#!/bin/sh
# Everything that a CUDA card must show, in one table: build/gpu/table.md. Without a card, nvcc and
# NCCL, it is a dry run on the stand-in, at sizes that it can compute.
#   gpu_all.sh [--parts NAME,…] [OUTPUT FOLDER]   builds, and runs all parts or those
#   gpu_all.sh --pack FILE                        only builds, where there may be no card: FILE has
#                                                 the programs and libraries (.tar.xz)
#   gpu_all.sh --packed FILE [--parts NAME,…] [OUTPUT FOLDER]
#                                                 runs those, from the same commit; it builds and
#                                                 installs nothing
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
export PATH
targets="unshard_train bench_cuda_rates"
pack=
packed=
parts=
while [ $# -gt 0 ]; do
  case $1 in
    --pack) pack=$2 ;;
    --packed) packed=$2 ;;
    --parts) parts=$2 ;;
    --*)
      echo "gpu_all.sh: there is no option $1" >&2
      exit 2
      ;;
    *) break ;;
  esac
  shift 2
done
out=${1:-build/gpu}

# build PRESET TARGET…
build() {
  preset=$1
  shift
  INSTALL=${INSTALL:-yes} sh common/scripts/install.sh build course
  cmake --preset "$preset" --log-level=NOTICE >/dev/null
  cmake --build "build/$preset" --target "$@"
}

if [ -n "$pack" ]; then
  # shellcheck disable=SC2086  # several words
  build cuda $targets tests_on_card
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkdir "$folder/bin" "$folder/lib"
  for program in unshard-train bench_cuda_rates test_cuda test_cuda_fsdp test_cuda_train; do
    strip -o "$folder/bin/$program" "build/cuda/bin/$program"
    # Every library but those of the system's compiler and of CUDA, which a machine with a card has.
    ldd "build/cuda/bin/$program" | awk '$3 ~ /^\// { print $3 }' |
      grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcudart|libcublas.*|libnccl)\.so' |
      xargs -r cp -Lt "$folder/lib"
  done
  mkdir -p "$(dirname "$pack")"
  tar cJf "$pack" -C "$folder" bin lib
  echo "Written: $pack ($(wc -c <"$pack") bytes). On a machine with a card: gpu_all.sh --packed $pack"
  exit 0
fi
if [ -n "$packed" ]; then
  mkdir -p build/gpu-packed
  tar xJf "$packed" -C build/gpu-packed
  # CUDA's libraries: the system's or those of Python's packages.
  cuda=$(find /usr/local/cuda/ "$(python3 -c \
    'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || echo /nowhere)" \
    -name 'lib*.so*' 2>/dev/null | sed -n 's,/lib\(nccl\.so\.2\|cublasLt\.so\.[0-9]*\|cudart\.so\.[0-9]*\)$,,p' |
    sort -u | paste -sd: -)
  LD_LIBRARY_PATH=$PWD/build/gpu-packed/lib:$cuda:${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH
  exec python3 tests/bench/gpu_all.py build/gpu-packed/bin "$out" ${parts:+--parts "$parts"}
fi

preset="cuda-host"
if [ "$(sh common/scripts/cuda_card.sh)" = yes ]; then
  preset=cuda
  [ ! -d tests/cuda ] || targets="$targets tests_on_card"
fi
if [ $preset = cuda-host ] && nvidia-smi -L >/dev/null 2>&1; then
  echo "gpu_all.sh: this machine has a card, but not all that it takes to use it: put nvcc into" \
    "PATH, and NCCL's header nccl.h into CUDA's include folder, /usr/include or" \
    "/usr/local/include; or pack the programs elsewhere (--pack FILE), and run them here" \
    "(--packed FILE)" >&2
  exit 1
fi
# shellcheck disable=SC2086  # several words
build $preset $targets
exec python3 tests/bench/gpu_all.py "build/$preset/bin" "$out" ${parts:+--parts "$parts"}
