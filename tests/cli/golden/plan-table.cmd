"$berth" plan "$data/job.json" --offers "$data/nodes.csv" --reproducible
