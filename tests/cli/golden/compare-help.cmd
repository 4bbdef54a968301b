"$berth" compare --help
