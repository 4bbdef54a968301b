"$berth" export --help
