#!/bin/sh
# Everything that a CUDA card must show, in one table: build/gpu/table.md. Without a card, nvcc and
# NCCL, it is a dry run on the stand-in, at sizes that it can compute.
#   gpu_all.sh [--parts NAME,…] [OUTPUT FOLDER]   builds, and runs all parts or those
#   gpu_all.sh --pack FILE [--most BYTES] [--from BIN FOLDER]
#                                                 only builds, where there may be no card: FILE has
#                                                 the programs and libraries (.tar.xz), of 64 MiB at
#                                                 most; with --from those that have been built
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
from=
most=67108864
while [ $# -gt 0 ]; do
  case $1 in
    --pack) pack=$2 ;;
    --packed) packed=$2 ;;
    --parts) parts=$2 ;;
    --from) from=$2 ;;
    --most) most=$2 ;;
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
  if [ -z "$from" ]; then
    # shellcheck disable=SC2086  # several words
    build cuda $targets tests_on_card
    from=build/cuda/bin
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  built=$(cd "$from/.." && pwd)
  preset=$(basename "$built") # gpu_all.py knows the stand-in by this name
  mkdir -p "$folder/$preset/bin" "$folder/$preset/lib"
  for program in unshard-train bench_cuda_rates test_cuda test_cuda_fsdp test_cuda_train; do
    [ -f "$from/$program" ] || continue
    strip -o "$folder/$preset/bin/$program" "$from/$program"
    # Every library but those of the system's compiler and of CUDA, which a machine with a card has.
    ldd "$from/$program" | awk '$3 ~ /^\// { print $3 }' |
      grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcudart|libcublas.*|libnccl)\.so' |
      xargs -r cp -Lt "$folder/$preset/lib"
  done
  git rev-parse HEAD >"$folder/$preset/commit"
  # For which cards it was compiled.
  [ ! -f "$built/CMakeCache.txt" ] ||
    sed -n '/^CMAKE_CUDA_ARCHITECTURES:/p' "$built/CMakeCache.txt" >"$folder/$preset/CMakeCache.txt"
  mkdir -p "$(dirname "$pack")"
  # -9 looks back 64 MiB, so to the same kernels in the program before.
  XZ_OPT=${XZ_OPT:--9} tar cJf "$pack" -C "$folder" "$preset"
  size=$(wc -c <"$pack")
  if [ "$size" -gt "$most" ]; then
    echo "gpu_all.sh: $pack has $size bytes, and $most are the most. Compile for your card alone:" \
      "CUDAARCHS=90 sets the architecture in a new build folder" >&2
    exit 1
  fi
  echo "Written: $pack ($size bytes). On a machine with a card: gpu_all.sh --packed $pack"
  exit 0
fi
if [ -n "$packed" ]; then
  unpacked=${UNPACKED:-$PWD/build/gpu-packed}
  rm -rf "$unpacked" # another pack may have another preset
  mkdir -p "$unpacked"
  tar xJf "$packed" -C "$unpacked"
  set -- "$unpacked"/*/commit
  here=$(git rev-parse HEAD 2>/dev/null || cat "$1")
  if [ ! -f "$1" ] || [ "$(cat "$1")" != "$here" ]; then
    echo "gpu_all.sh: $packed was packed at commit $(cat "$1" 2>/dev/null || echo unknown), and" \
      "this is $here: check that one out, or pack anew" >&2
    exit 1
  fi
  folder=$(dirname "$1")
  # CUDA's libraries: the system's or those of Python's packages.
  cuda=$(find /usr/local/cuda/ "$(python3 -c \
    'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || echo /nowhere)" \
    -name 'lib*.so*' 2>/dev/null | sed -n 's,/lib\(nccl\.so\.2\|cublasLt\.so\.[0-9]*\|cudart\.so\.[0-9]*\)$,,p' |
    sort -u | paste -sd: -)
  LD_LIBRARY_PATH=$folder/lib:$cuda:${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH
  exec python3 tests/bench/gpu_all.py "$folder/bin" "$out" ${parts:+--parts "$parts"}
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
