"$berth" offers --help
