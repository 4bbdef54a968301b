"$berth" offers --offers "$data/nodes.csv" --json --reproducible
