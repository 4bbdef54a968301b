"$berth" plan --model llama-3.1-405b --tokens 1B --seq 4096 --global-batch-tokens 1048576 --offers "$data/nodes.csv"
