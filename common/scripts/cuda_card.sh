#!/bin/sh
# Says "yes" if programs with CUDA can be built and run here: a card, nvcc and NCCL's header. Else it
# says nothing: then the stand-in for a card takes their place.
PATH=$PATH:/usr/local/cuda/bin
nvcc=$(command -v nvcc) || exit 0
nvidia-smi -L >/dev/null 2>&1 || exit 0
for folder in "$(dirname "$nvcc")/../include" /usr/local/cuda/include /usr/include \
  /usr/local/include; do
  [ ! -f "$folder/nccl.h" ] || { echo yes; exit 0; }
done
