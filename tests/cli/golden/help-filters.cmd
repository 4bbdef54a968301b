"$berth" help filters
