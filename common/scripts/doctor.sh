#!/bin/sh
# Says what this machine can do: for each thing the version found, or that it is absent and what
# that means. Installs nothing and always succeeds; what is needed but missing is said at the end.
set -u

missing=

# line NAME VERSION MEANING_IF_ABSENT
line() {
  if [ -n "$2" ]; then
    printf '  %-13s %s\n' "$1" "$2"
  else
    printf '  %-13s absent: %s\n' "$1" "$3"
  fi
}
required() {
  line "$1" "$2" "$3"
  [ -n "$2" ] || missing="$missing $1"
}

# The first dotted number in what a command prints about itself.
version_of() {
  command -v "$1" >/dev/null 2>&1 || return 0
  found=$("$@" 2>&1 | grep -o '[0-9][0-9]*\.[0-9][0-9.]*[0-9]' | head -n 1)
  echo "${found:-found, of unknown version}"
}

# The path of a header, wherever distributions put it.
find_header() {
  for folder in /usr/include /usr/include/*-linux-gnu /usr/local/include \
    /opt/homebrew/include; do
    for header in "$@"; do
      [ ! -f "$folder/$header" ] || { echo "$folder/$header" && return 0; }
    done
  done
}

# macro HEADER NAME: the number a header defines NAME as.
macro() {
  [ -n "$1" ] || return 0
  sed -n "s/^[ \t]*#[ \t]*define[ \t]*$2[ \t]*\([0-9][0-9]*\).*/\1/p" "$1" | head -n 1
}

# dotted HEADER MAJOR MINOR PATCH: a version from three macros.
dotted() {
  [ -n "$1" ] || return 0
  major=$(macro "$1" "$2")
  echo "${major:+$major.$(macro "$1" "$3").$(macro "$1" "$4")}"
}

compiler() {
  for name in g++ clang++; do
    command -v $name >/dev/null 2>&1 || continue
    echo "$name $($name -dumpfullversion -dumpversion 2>/dev/null || version_of $name --version)"
    return 0
  done
}

# Its header is in another package, which nothing needs; the library bears the version in its name.
openblas() {
  for library in /usr/lib/*-linux-gnu/openblas-openmp/libopenblas.so.0 \
    /usr/lib/*-linux-gnu/openblas-pthread/libopenblas.so.0; do
    [ -e "$library" ] || continue
    found=$(readlink -f "$library" | sed -n 's/.*-r\([0-9][0-9.]*[0-9]\)\.so$/\1/p')
    echo "${found:-found, of unknown version}"
    return 0
  done
}

catch2() {
  one=$(find_header catch2/catch.hpp)
  many=$(find_header catch2/catch_version_macros.hpp)
  dotted "${many:-$one}" CATCH_VERSION_MAJOR CATCH_VERSION_MINOR CATCH_VERSION_PATCH
}

fmt() {
  header=$(find_header fmt/base.h fmt/core.h)
  number=$(macro "$header" FMT_VERSION)
  [ -z "$number" ] || echo "$((number / 10000)).$((number / 100 % 100)).$((number % 100))"
}

memory() {
  awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null
}

nlohmann() {
  header=$(find_header nlohmann/detail/abi_macros.hpp)
  dotted "${header:-$(find_header nlohmann/json.hpp)}" NLOHMANN_JSON_VERSION_MAJOR \
    NLOHMANN_JSON_VERSION_MINOR NLOHMANN_JSON_VERSION_PATCH
}

cli11() {
  header=$(find_header CLI/Version.hpp)
  dotted "$header" CLI11_VERSION_MAJOR CLI11_VERSION_MINOR CLI11_VERSION_PATCH
}

toml() {
  header=$(find_header toml++/impl/version.h toml++/impl/version.hpp)
  [ -n "$header" ] || header=$(find_header toml++/toml.h)
  dotted "$header" TOML_LIB_MAJOR TOML_LIB_MINOR TOML_LIB_PATCH
}

# Its header bears no version.
libmd() {
  [ -z "$(find_header sha2.h)" ] || echo found
}

# Its path, also where its installer puts it, which is in nobody's PATH.
nvcc_path() {
  for name in nvcc /usr/local/cuda/bin/nvcc; do
    command -v $name 2>/dev/null && return 0
  done
}

cuda_compiler() {
  [ -n "$(nvcc_path)" ] || return 0
  "$(nvcc_path)" --version | sed -n 's/.*release [0-9.]*, V\([0-9.]*\)$/\1/p'
}

# Its header may be among CUDA's own.
nccl() {
  header=
  for folder in "$(dirname "$(nvcc_path)")/../include" /usr/local/cuda/include; do
    [ -n "$header" ] || [ ! -f "$folder/nccl.h" ] || header=$folder/nccl.h
  done
  dotted "${header:-$(find_header nccl.h)}" NCCL_MAJOR NCCL_MINOR NCCL_PATCH
}

# With which `make cuda-kernels` reads machine code. Packages of PyPI have it where no PATH leads.
disassembler() {
  [ -n "$(nvcc_path)" ] || return 0
  python3 -B - "$(dirname "$(nvcc_path)")" <<'end' 2>/dev/null
import pathlib, sys
sys.path.insert(0, "tests/cuda")
import kernel_table
found = kernel_table.disassembler([pathlib.Path(sys.argv[1])])
print(pathlib.Path(found[0]).name if found else "")
end
}

card() {
  command -v nvidia-smi >/dev/null 2>&1 || return 0
  nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort | uniq -c | sed 's/^ *//'
}

echo 'This machine'
line system "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null)" 'unknown system'
line processors "$(nproc 2>/dev/null)" 'unknown number'
line memory "$(memory)" 'unknown size'

echo
echo 'Needed for the demo and the tests'
required compiler "$(compiler)" 'nothing can be built'
required CMake "$(version_of cmake --version)" 'nothing can be built'
required Ninja "$(version_of ninja --version)" 'nothing can be built'
required Catch2 "$(catch2)" 'no tests'
required fmt "$(fmt)" 'nothing can be built'
required CLI11 "$(cli11)" 'no command-line parsing, so no programs'
required nlohmann-json "$(nlohmann)" 'no checkpoints, no summaries'
required zlib "$(sed -n 's/^#define ZLIB_VERSION "\(.*\)"/\1/p' "$(find_header zlib.h)" 2>/dev/null)" \
  'no checkpoints'
required libmd "$(libmd)" 'no fingerprints of models, so no training'
required 'toml++' "$(toml)" 'no configuration files'

echo
echo 'Conveniences'
line ccache "$(version_of ccache --version)" 'every rebuild from scratch takes the full time'
line Doxygen "$(version_of doxygen --version)" '`make docs` would install it'
line clang++ "$(version_of clang++ --version)" '`make check-clang` would install it'
line clang-format "$(version_of clang-format --version)" '`make format` would install it'
line codespell "$(version_of codespell --version)" '`make check` would install it'
line clang-tidy "$(version_of clang-tidy --version)" '`make tidy` would install it'
line MPI "$(version_of mpirun --version)" '`make test BACKEND=mpi` would install it'
line OpenBLAS "$(openblas)" '`make bench` would install it, to measure our products against'
line Python "$(version_of python3 --version)" 'only the scripts around the project use it'

if [ -d tests/support/cuda_on_host ]; then # a student kit has none
  echo
  echo 'CUDA: the kernels run in `make test-cuda`, on any machine, on a stand-in for a card'
  nvcc_version=$(cuda_compiler) nccl_version=$(nccl) cards=$(card)
  line nvcc "$nvcc_version" 'the kernels are not compiled for a card'
  [ ! -d tests/cuda ] || line disassembler "$(disassembler)" \
    '`make cuda-kernels` skips its rules of machine code: `pip install nvidia-cuda-nvdisasm`'
  line NCCL "$nccl_version" 'groups of cards exist on the stand-in only'
  line 'CUDA card' "$cards" 'the kernels run on the stand-in only'
  if [ -z "$nvcc_version" ]; then
    line 'It can' 'run the kernels on the stand-in'
  elif [ -z "$nccl_version" ]; then
    line 'It can' 'compile the kernels for a card, but no program; run them on the stand-in'
  elif [ -z "$cards" ]; then
    line 'It can' 'compile for a card, and run the kernels on the stand-in'
  else
    line 'It can' 'compute on a card: `cmake --preset cuda`'
  fi
fi

echo
if [ -z "$missing" ]; then
  first='make demo'
  [ -d solutions/task7_integration ] || first='make warm-up' # a student kit: nothing is written yet
  echo "Everything needed is installed: try \`$first\`."
else
  echo "Missing:$missing. Every target of make prints and installs what it needs."
fi
