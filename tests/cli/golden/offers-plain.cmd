"$berth" offers --offers "$data/nodes.csv" --plain --no-header --columns id,gpu,usd/gpu/h,region
