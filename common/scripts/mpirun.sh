#!/bin/sh
# Starts a program as ranks that are processes:
#   mpirun.sh LAUNCHER RANKS PROGRAM [ARGUMENT…]
# What Open MPI refuses unless asked is asked for here: to run as root (containers do), and more
# ranks than processors. Its ranks are bound to no core, because each has threads of its own. MPICH
# takes no notice of these variables.
set -eu
launcher=$1 ranks=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
# If another machine cannot be reached any more, mpirun of Open MPI 4 notices it within 10 seconds,
# not hours.
export OMPI_MCA_oob_tcp_keepalive_time="${OMPI_MCA_oob_tcp_keepalive_time:-2}"
export OMPI_MCA_oob_tcp_keepalive_intvl="${OMPI_MCA_oob_tcp_keepalive_intvl:-2}"
export OMPI_MCA_oob_tcp_keepalive_probes="${OMPI_MCA_oob_tcp_keepalive_probes:-3}"
# The same as the first four for Open MPI 5.
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export PRTE_MCA_hwloc_default_binding_policy=none
exec "$launcher" -np "$ranks" "$@"
