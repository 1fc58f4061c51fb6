#!/bin/bash
# Train a recipe on 8 machines of 8 GPUs with Slurm: sbatch recipes/cluster/slurm.sh RECIPE RUN
# It starts Ray on each machine, then `truing train --ray`; Ray ends with the job. Not yet run on GPUs by us.
# RUN, the recipe and the environment of Python are on a file system that all machines share.
#SBATCH --job-name=truing
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:INT@300

set -euo pipefail
recipe=${1:?a recipe} run=${2:?a run directory}
port=6379
export RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --ip-address | cut -d' ' -f1)

on_node() {  # on_node NODE COMMAND...: run a command on a machine of the job until the job ends
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" "${@:2}" &
}

on_node "${nodes[0]}" ray start --head --node-ip-address="$head" --port="$port" --include-dashboard=false \
    --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="$SLURM_GPUS_ON_NODE" --block
for node in "${nodes[@]:1}"; do
    on_node "$node" ray start --address="$head:$port" \
        --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="$SLURM_GPUS_ON_NODE" --block
done

# Truing refuses a cluster that is too small, so wait until each machine has joined.
for _ in $(seq 60); do
    ray health-check --address="$head:$port" >/dev/null 2>&1 && break
    sleep 2
done
python - "$head:$port" "${#nodes[@]}" <<'END'
import sys
import time

import ray

ray.init(sys.argv[1], log_to_driver=False)
end = time.monotonic() + 300
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]) and time.monotonic() < end:
    time.sleep(2)
END

resume=()
if [ -f "$run/run.json" ]; then resume=(--resume); fi
truing train "$recipe" --out "$run" "${resume[@]}" --ray "$head:$port" &
training=$!
trap 'kill -INT "$training"' INT  # before the time limit: save, then end
status=0
wait "$training" || status=$?
while kill -0 "$training" 2>/dev/null; do wait "$training" || status=$?; done
exit "$status"
