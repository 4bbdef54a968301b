"$berth" offers --offers "$data/nodes.csv" --csv
