"$berth" plan "$data/job.json" --offers "$data/nodes.csv" --json --reproducible | jq -r '[paths(scalars or . == null) | map(if type == "number" then "[]" else . end) | join(".")] | unique[]'
