"$berth" estimate --help
