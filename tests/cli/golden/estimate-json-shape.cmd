"$berth" estimate --model gpt2 --gpus 8 --json --reproducible | jq -r '[paths(type != "object" and type != "array") | map(if type == "number" then "[]" else . end) | join(".")] | unique[]'
