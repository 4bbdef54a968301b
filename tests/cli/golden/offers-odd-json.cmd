"$berth" offers --offers "$data/odd.json" --sort none --columns provider,id,gpu,problem
