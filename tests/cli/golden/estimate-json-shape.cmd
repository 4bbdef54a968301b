"$berth" estimate --model gpt2 --gpus 8 --json --reproducible | jq -r '[paths(scalars or . == null) | map(if type == "number" then "[]" else . end) | join(".")] | unique[]'
