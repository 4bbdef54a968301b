"$berth" plan --help
