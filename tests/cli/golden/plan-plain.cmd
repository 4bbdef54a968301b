"$berth" plan "$data/job.json" --offers "$data/nodes.csv" --plain --columns rank,offer,hardware,gpus,strategy,cost
