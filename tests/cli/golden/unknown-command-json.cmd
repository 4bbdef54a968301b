"$berth" offer --json --reproducible
