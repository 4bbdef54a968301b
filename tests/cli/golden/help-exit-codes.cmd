"$berth" help exit-codes
