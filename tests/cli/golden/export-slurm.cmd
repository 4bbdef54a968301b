"$berth" export --model llama-3.1-8b --gpus 32 --engine megatron --micro-batch 2 --grad-accum 4 --recompute full --to slurm
