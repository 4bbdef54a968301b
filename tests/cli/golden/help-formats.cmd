"$berth" help formats
