"$berth" export --model llama-3.1-8b --gpus 32 --engine fsdp2 --micro-batch 2 --grad-accum 4 --recompute full --to torchtitan
