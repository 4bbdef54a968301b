"$berth" estimate --model gpt2 --gpu a100-80-sxm --gpus 4 --strategy zero1 --micro-batch 8
