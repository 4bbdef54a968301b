"$berth" offers --bogus --json --reproducible
