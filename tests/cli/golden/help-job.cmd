$berth help job
