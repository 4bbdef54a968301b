"$berth" plan "$data/job.json" --offers "$data/nodes.csv" --gpu a100 --reproducible -q -o plan.json >/dev/null && "$berth" explain plan.json && "$berth" explain plan.json --json | jq -r 'keys[]'
