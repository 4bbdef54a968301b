"$berth" offers --jsn
