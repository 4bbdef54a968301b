"$berth" completion
